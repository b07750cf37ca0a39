"""`kubectl modelcache`: a kubectl plugin, found by its name on PATH."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

from modelcache_api.conditions import truncate
from modelcache_api.names import Track
from modelcache_cli.affinity import AffinityRequest, fetch_affinity
from modelcache_cli.bundle.commands import bundle_app
from modelcache_cli.capacity.commands import plan_app
from modelcache_cli.change_commands import change_app
from modelcache_cli.checklist.commands import checklist_app
from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.errors import CliError
from modelcache_cli.inject import inject_text, open_lookup
from modelcache_cli.new_version import fetch_new_version
from modelcache_cli.options import (
    SYSTEM_NAMESPACE,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    OutputOption,
    ViewOption,
    run,
)
from modelcache_cli.output import Format, View, render
from modelcache_cli.overview_commands import overview_app
from modelcache_cli.release import tell_releases
from modelcache_cli.simulate_commands import simulate_app
from modelcache_cli.verify import describe, find_problem, observe_version, to_document
from modelcache_cli.why import parse_target
from modelcache_cli.why_answer import find_answer
from modelcache_kube.timestamps import utc_now
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.injection import InjectionSettings

_WAIT_IMAGE = f"modelcache/agent:{installed_version('modelcache')}"
_WAIT_IMAGE_VARIABLE = "MODELCACHE_AGENT_IMAGE"

PROGRAM = "kubectl modelcache"

app = typer.Typer(
    name=PROGRAM,
    add_completion=False,
    help="See and use the model cache of a Kubernetes cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(simulate_app)
app.add_typer(plan_app)
app.add_typer(overview_app)
app.add_typer(change_app)
app.add_typer(bundle_app)
app.add_typer(checklist_app)


def _print_releases(is_asked: bool) -> None:
    if is_asked:
        print(run(tell_releases()), end="")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_releases,
            is_eager=True,
            help="Print the plugin's release, and the operator's where the cluster tells it.",
        ),
    ] = False,
) -> None:
    """See and use the model cache of a Kubernetes cluster."""


@app.command()
def affinity(
    name: Annotated[str, typer.Argument(help="Name of the ModelCache.")],
    namespace: NamespaceOption = None,
    track: Annotated[Track, typer.Option(help="Version to be near to.")] = Track.STABLE,
    required: Annotated[
        bool,
        typer.Option(
            "--required", help="Keep the pod off nodes without a verified copy (it may wait)."
        ),
    ] = False,
    output: OutputOption = Format.YAML,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Print the nodeAffinity that brings a pod to nodes that hold the model.

    Put it under spec.affinity.nodeAffinity of the pod (or of a Deployment's template).
    """
    choice = ClusterChoice(kubeconfig, context, namespace)

    async def work() -> str:
        async with open_cluster(choice) as (kube, chosen_namespace):
            request = AffinityRequest(chosen_namespace, name, track.value, required)
            return render(await fetch_affinity(kube, request), output)

    print(run(work()), end="")


@app.command()
def inject(
    file: Annotated[Path, typer.Option("--filename", "-f", help="YAML or JSON; - reads stdin.")],
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Of documents that name none. Default: context's."),
    ] = None,
    wait_image: Annotated[
        str,
        typer.Option(help="Image of the wait container: the agent's.", envvar=_WAIT_IMAGE_VARIABLE),
    ] = _WAIT_IMAGE,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no cluster: everything but the affinity.")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Print manifests with the volume, wait container and affinity of their ModelCaches.

    Pods and everything with a pod template; opt in by the label modelcache.io/cache on the pod.
    What is printed can be applied: kubectl modelcache inject -f app.yaml | kubectl apply -f -
    """
    choice = ClusterChoice(kubeconfig, context, namespace)

    async def work() -> str:
        text = _read(file)
        async with open_lookup(choice, offline=offline) as (lookup, chosen):
            injected = await inject_text(text, lookup, chosen, InjectionSettings(wait_image))
        for note in injected.notes:
            print(f"note: {note}", file=sys.stderr)
        return injected.text

    print(run(work()), end="")


@app.command("new-version")
def new_version(
    name: Annotated[str, typer.Argument(help="Name of the ModelVersion to copy.")],
    new_name: Annotated[str, typer.Option("--as", help="Name of the new ModelVersion.")],
    namespace: NamespaceOption = None,
    output: OutputOption = Format.YAML,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Print a copy of a ModelVersion under another name, for what its source holds now.

    Changes nothing: kubectl modelcache new-version m1 --as m2 | kubectl apply -f -
    """
    choice = ClusterChoice(kubeconfig, context, namespace)

    async def work() -> str:
        async with open_cluster(choice) as (kube, chosen):
            made = await fetch_new_version(kube, ObjectKey(chosen, name), new_name)
        for note in made.notes:
            print(f"note: {note}", file=sys.stderr)
        return render(made.document, output)

    print(run(work()), end="")


@app.command()
def verify(
    name: Annotated[str, typer.Argument(help="Name of the ModelVersion.")],
    namespace: NamespaceOption = None,
    output: ViewOption = View.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Say what the cluster knows of a ModelVersion: its source, its content, its nodes.

    Changes nothing. Fails with one line if something of it is not right.
    """
    choice = ClusterChoice(kubeconfig, context, namespace)

    async def work() -> None:
        async with open_cluster(choice) as (kube, chosen):
            seen = await observe_version(kube, ObjectKey(chosen, name), utc_now())
        wanted, problem = output.document_format, find_problem(seen)
        told = describe(seen) if wanted is None else render(to_document(seen, problem), wanted)
        print(told, end="")
        if problem is not None:
            raise CliError(truncate(f"{seen.key}: {problem}", 1000))

    run(work())


@app.command()
def why(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TYPE] NAME",
            help="modelcache (default), modelversion, modelcachequota, node or pod.",
        ),
    ],
    namespace: NamespaceOption = None,
    system_namespace: Annotated[
        str, typer.Option(help="Where the agents run; for the decisions of a node.")
    ] = SYSTEM_NAMESPACE,
    output: ViewOption = View.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Say in one line how an object stands, for what cause, and what cures it.

    Of a node also its last 50 decisions: what was evicted, with which score, and for what.
    """
    choice = ClusterChoice(kubeconfig, context, namespace)

    async def work() -> str:
        async with open_cluster(choice) as (kube, chosen):
            answer = await find_answer(kube, parse_target(words, chosen), system_namespace)
        if (wanted := output.document_format) is not None:
            return render(answer.to_document(), wanted)
        return answer.tell()

    print(run(work()), end="")


def _read(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {file}: {error}") from error


def main() -> None:
    """Entry point."""
    app(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
