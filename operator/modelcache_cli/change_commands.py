"""The command lines that change something: as the person who asks, with that person's rights."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from modelcache_api.names import Priority, Retention
from modelcache_cli.cluster import ClusterChoice, open_cluster
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
            print(f"note: {note}", file=sys.stderr)
        if (wanted := output.document_format) is not None:
            return render(dict(done.found), wanted)
        return f"{done.plan.told}\n"

    print(run(work()), end="")
