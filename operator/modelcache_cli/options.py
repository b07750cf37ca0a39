"""What the commands share: their common options, and how a result or an error leaves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer

from modelcache_cli.errors import CliError
from modelcache_cli.output import Format, View
from modelcache_kube import KubeError

_T = TypeVar("_T")

SYSTEM_NAMESPACE = "modelcache-system"

NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Default: the context's namespace.")
]
AllNamespacesOption = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Objects of all namespaces.")
]
KubeconfigOption = Annotated[
    Path | None, typer.Option(help="Default: KUBECONFIG, then ~/.kube/config.")
]
ContextOption = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
OutputOption = Annotated[Format, typer.Option("--output", "-o", help="yaml or json.")]
ViewOption = Annotated[
    View,
    typer.Option("--output", "-o", metavar="<format>", help="table, wide, json or yaml."),
]
SystemOption = Annotated[str, typer.Option(help="Where operator and agents run.")]


def run(work: Coroutine[None, None, _T]) -> _T:
    """What the work gives; an error that a person can act on ends the command with status 1."""
    try:
        return asyncio.run(work)
    except (CliError, KubeError) as error:
        fail(error)


def fail(error: Exception, status: int = 1) -> NoReturn:
    """End the command with one line, even where a library's own sentence has more."""
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    raise typer.Exit(status) from error
