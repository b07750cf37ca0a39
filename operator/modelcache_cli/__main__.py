"""`kubectl modelcache`: a kubectl plugin, found by its name on PATH."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from modelcache_cli.affinity import AffinityRequest, fetch_affinity
from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.errors import CliError
from modelcache_cli.output import Format, render
from modelcache_kube import KubeError

app = typer.Typer(
    name="kubectl modelcache",
    help="See and use the model cache of a Kubernetes cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Track(StrEnum):
    """Which of a ModelCache's versions is meant."""

    STABLE = "stable"


@app.callback()
def main_options() -> None:
    """See and use the model cache of a Kubernetes cluster."""


@app.command()
def affinity(
    name: Annotated[str, typer.Argument(help="Name of the ModelCache.")],
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Default: the context's namespace.")
    ] = None,
    track: Annotated[Track, typer.Option(help="Version to be near to.")] = Track.STABLE,
    required: Annotated[
        bool,
        typer.Option(
            "--required", help="Keep the pod off nodes without a verified copy (it may wait)."
        ),
    ] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="yaml or json.")] = Format.YAML,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: KUBECONFIG, then ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
) -> None:
    """Print the nodeAffinity that brings a pod to nodes that hold the model.

    Put it under spec.affinity.nodeAffinity of the pod (or of a Deployment's template).
    """
    choice = ClusterChoice(kubeconfig, context, namespace)

    async def work() -> str:
        async with open_cluster(choice) as (kube, chosen_namespace):
            request = AffinityRequest(chosen_namespace, name, track.value, required)
            return render(await fetch_affinity(kube, request), output)

    print(_run(work()), end="")


def _run(work: Coroutine[None, None, str]) -> str:
    try:
        return asyncio.run(work)
    except (CliError, KubeError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def main() -> None:
    """Entry point."""
    app(prog_name="kubectl modelcache")


if __name__ == "__main__":
    main()
