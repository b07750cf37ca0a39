"""The command lines that change something: as the person who asks, with that person's rights."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from modelcache_api.durations import parse_duration
from modelcache_api.names import Priority, Retention
from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.errors import CliError
from modelcache_cli.evicting import Eviction, evict_copies
from modelcache_cli.options import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    ViewOption,
    run,
)
from modelcache_cli.output import View, render
from modelcache_cli.pinning import PinWish, pin_cache
from modelcache_operator.decide.world import ObjectKey

change_app = typer.Typer()


@change_app.command()
def pin(  # noqa: PLR0913, PLR0917 - one parameter for each option
    name: Annotated[str, typer.Argument(help="Name of the ModelCache.")],
    namespace: NamespaceOption = None,
    off: Annotated[
        bool, typer.Option("--off", help="Unpin it: copies beyond minReady may be given up again.")
    ] = False,
    priority: Annotated[
        Priority | None, typer.Option(help="Set spec.priority as well. Default: as it is.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Although another tool applies the field and sets it back."),
    ] = False,
    output: ViewOption = View.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Keep a ModelCache's copies: set spec.retention to Pinned, or to Cached with --off.

    Fails, and changes nothing, where the namespace's ModelCacheQuota does not grant it.
    """
    choice = ClusterChoice(kubeconfig, context, namespace)
    wish = PinWish(Retention.CACHED if off else Retention.PINNED, priority, force)

    async def work() -> str:
        async with open_cluster(choice) as (kube, chosen):
            done = await pin_cache(kube, ObjectKey(chosen, name), wish)
        for note in done.plan.notes:
            _note(note)
        if (wanted := output.document_format) is not None:
            return render(dict(done.found), wanted)
        return f"{done.plan.told}\n"

    print(run(work()), end="")


@change_app.command()
def evict(
    name: Annotated[str, typer.Argument(help="Name of the ModelVersion.")],
    node: Annotated[
        list[str], typer.Option("--node", metavar="<str>", help="Node whose copy goes; repeat it.")
    ],
    namespace: NamespaceOption = None,
    timeout: Annotated[str, typer.Option(help="How long to wait until it is gone.")] = "1m",
    output: ViewOption = View.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Ask nodes to give up their copy of a ModelVersion. It comes back when a pod asks for it.

    Fails, and asks nobody, if a copy has to stay: pinned, mounted, one of minReady, in a rollout.
    """
    choice = ClusterChoice(kubeconfig, context, namespace)

    async def work() -> list[Eviction]:
        seconds = _parse_timeout(timeout)
        async with open_cluster(choice) as (kube, chosen):
            key = ObjectKey(chosen, name)
            return await evict_copies(kube, key, node, seconds=seconds, note=_note)

    outcomes = run(work())
    if (wanted := output.document_format) is not None:
        evictions = [{"node": o.node, "gone": o.is_gone, "told": o.told} for o in outcomes]
        print(render({"evictions": evictions}, wanted), end="")
    else:
        for one in outcomes:
            print(f"node {one.node}: {one.told}")
    if not all(one.is_gone for one in outcomes):
        raise typer.Exit(1)


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _parse_timeout(text: str) -> float:
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise CliError(f"--timeout: {error}") from error
