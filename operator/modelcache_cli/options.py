"""What the commands share: their common options, and how a result or an error leaves."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar

import typer

from modelcache_cli.errors import CliError
from modelcache_cli.output import Format, View
from modelcache_kube import KubeError

_T = TypeVar("_T")

SYSTEM_NAMESPACE = "modelcache-system"
_EXIT_TERMINATED: Final = 128 + signal.SIGTERM

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
    """What the work gives; an error that a person can act on ends the command with status 1.

    SIGTERM interrupts it as Ctrl-C does: what was begun is taken back.
    """
    try:
        return asyncio.run(_until_terminated(work))
    except (CliError, KubeError) as error:
        fail(error)
    except asyncio.CancelledError:
        raise typer.Exit(_EXIT_TERMINATED) from None


async def _until_terminated(work: Coroutine[None, None, _T]) -> _T:
    task = asyncio.ensure_future(work)
    with suppress(NotImplementedError):  # as on Windows, where nobody sends it
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def fail(error: Exception, status: int = 1) -> NoReturn:
    """End the command with one line, even where a library's own sentence has more."""
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    raise typer.Exit(status) from error
