"""The command lines of `status` and `top`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import Fleet, observe_fleet
from modelcache_cli.options import (
    AllNamespacesOption,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    ViewOption,
    run,
)
from modelcache_cli.output import View, render
from modelcache_cli.status import render_status, summarise
from modelcache_cli.top import list_models, list_nodes, render_models, render_nodes
from modelcache_kube import ApiUnavailable, KubeClient

overview_app = typer.Typer()
_CLEAR: Final = "\x1b[H\x1b[2J"
_Make = Callable[[Fleet], dict[str, Any]]
_Show = Callable[..., str]


class Subject(StrEnum):
    """What `top` lists."""

    NODES = "nodes"
    MODELS = "models"


_TOPS: Final[dict[Subject, tuple[_Make, _Show]]] = {
    Subject.NODES: (list_nodes, render_nodes),
    Subject.MODELS: (list_models, render_models),
}


@overview_app.command()
def status(
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    output: ViewOption = View.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show nodes, tiers and ModelCaches, and what can be done about what is not right.

    Nodes and tiers are the cluster's; everything else is of the namespace, or of all with -A.
    """
    choice = ClusterChoice(kubeconfig, context, namespace)

    async def work() -> str:
        async with open_cluster(choice) as (kube, chosen):
            fleet = await observe_fleet(kube, None if all_namespaces else chosen)
        return show(summarise(fleet), output, render_status)

    print(run(work()), end="")


@overview_app.command()
def top(  # noqa: PLR0913, PLR0917 - one parameter for each option
    subject: Annotated[Subject, typer.Argument(help="nodes or models.")] = Subject.NODES,
    namespace: NamespaceOption = None,
    all_namespaces: AllNamespacesOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again until stopped.")] = False,
    interval: Annotated[
        float, typer.Option(min=1.0, max=3600.0, help="Seconds between two looks of --watch.")
    ] = 5.0,
    output: ViewOption = View.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show what nodes hold in each tier, the fullest first; or models, the largest first.

    Models are of the namespace, or of all with -A.
    """
    choice = ClusterChoice(kubeconfig, context, namespace)
    make, render_table = _TOPS[subject]

    async def look(kube: KubeClient, chosen: str) -> str:
        fleet = await observe_fleet(kube, None if all_namespaces else chosen)
        return show(make(fleet), output, render_table)

    async def work() -> None:
        if watch and output in {View.JSON, View.YAML}:
            raise CliError("--watch shows tables: leave it out, or -o json and yaml")
        async with open_cluster(choice) as (kube, chosen):
            while True:
                try:
                    text = await look(kube, chosen)
                except ApiUnavailable as error:
                    if not watch:
                        raise
                    print(f"note: {error}", file=sys.stderr)
                    await asyncio.sleep(interval)
                    continue
                # Without a terminal nothing but the tables is written, one below the other.
                print(
                    f"{_CLEAR if watch and sys.stdout.isatty() else ''}{text}", end="", flush=True
                )
                if not watch:
                    return
                await asyncio.sleep(interval)

    try:
        run(work())
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def show(document: dict[str, Any], output: View, render_table: _Show) -> str:
    """The document in the format that was asked for."""
    if (chosen := output.document_format) is not None:
        return render(document, chosen)
    return render_table(document, wide=output is View.WIDE)
