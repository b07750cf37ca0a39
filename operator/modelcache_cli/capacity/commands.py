"""The command line of the planner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from modelcache_api.durations import parse_duration
from modelcache_api.quantities import parse_bytes
from modelcache_cli.capacity.formulas import find_bandwidth, find_storage
from modelcache_cli.capacity.manifests import read_default_quota, read_manifests, read_nodes
from modelcache_cli.capacity.placing import make_fit
from modelcache_cli.capacity.report import Plan, render_plan, to_document
from modelcache_cli.capacity.world import Surroundings, join_worlds, observe_cluster
from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.errors import CliError
from modelcache_cli.options import ContextOption, KubeconfigOption, ViewOption, fail
from modelcache_cli.output import View, render
from modelcache_kube import KubeError
from modelcache_operator.decide.world import ModelVersionView
from modelcache_simulator.catalogue import load_catalogue
from modelcache_simulator.errors import SimulationError

plan_app = typer.Typer()


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the person gave, as it was written."""

    files: Sequence[Path]
    nodes: Path | None
    sizes: Sequence[str]
    catalogue: Path | None
    default_quota: Path | None
    headroom: float
    peak: int | None
    within: str


@plan_app.command()
def plan(  # noqa: PLR0913, PLR0917 - one parameter for each option
    file: Annotated[
        list[Path],
        typer.Option(
            "--filename", "-f", metavar="<path>", help="Manifests: files or folders; repeat it."
        ),
    ],
    nodes: Annotated[
        Path | None, typer.Option(help="YAML of nodes to plan for. Default: those of the cluster.")
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<str>", help="NAME=16Gi of a ModelVersion that is not resolved yet; repeat it."
        ),
    ] = None,
    catalog: Annotated[
        Path | None, typer.Option(help="YAML with sizes by spec.model. Default: built in.")
    ] = None,
    default_quota: Annotated[
        Path | None,
        typer.Option(help="YAML of the chart's quotas.default. Without it, there is none."),
    ] = None,
    headroom: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="What each node shall keep free beyond it.")
    ] = 0.2,
    peak: Annotated[
        int | None, typer.Option(min=1, help="Cold starts at once. Default: every copy.")
    ] = None,
    within: Annotated[str, typer.Option(help="How long these may take.")] = "60s",
    output: ViewOption = View.TABLE,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Of documents that name none.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Say whether manifests fit, by the operator's own placement. Changes nothing.

    Fails if a ModelCache or its canary gets less than it wants, or a node keeps too little free.
    """
    request = PlanRequest(file, nodes, size or (), catalog, default_quota, headroom, peak, within)
    try:
        made = asyncio.run(make_plan(request, ClusterChoice(kubeconfig, context, namespace)))
    except (CliError, KubeError) as error:
        fail(error, 2)
    if (chosen := output.document_format) is not None:
        print(render(to_document(made), chosen), end="")
    else:
        print(render_plan(made), end="")
    if not made.fits:
        raise typer.Exit(1)


async def make_plan(request: PlanRequest, choice: ClusterChoice) -> Plan:
    """Gather, place, sum up.

    Raises:
        CliError: what was given cannot be planned with.
    """
    try:
        seconds = float(parse_duration(request.within))
    except ValueError as error:
        raise CliError(f"--within: {error}") from error
    if not seconds:
        raise CliError("--within: 0s is no time to start in")
    sizes = _parse_sizes(request.sizes)
    find_size = _make_size_finder(sizes, request.catalogue)
    if request.nodes is not None:
        there, namespace = Surroundings(read_nodes(request.nodes)), choice.namespace or "default"
    else:
        async with open_cluster(choice) as (kube, namespace):
            there = await observe_cluster(kube)
    manifests = read_manifests(request.files, namespace)
    if not manifests.caches:
        raise CliError("there is no ModelCache in what was given with -f")
    names = {view.key.name for view in (*manifests.versions, *there.versions)}
    if strange := sorted(sizes.keys() - names):
        raise CliError(f"--size: there is no ModelVersion {strange[0]!r} to give a size to")
    default_limits = read_default_quota(request.default_quota)
    fit = make_fit(join_worlds(there, manifests, find_size, default_limits))
    storage = find_storage(fit, request.headroom)
    return Plan(fit, storage, find_bandwidth(fit, request.peak, seconds))


def _make_size_finder(
    given: Mapping[str, int], catalogue: Path | None
) -> Callable[[ModelVersionView], int | None]:
    """By what was given, by what the operator found, by what the model usually has."""
    try:
        usual = load_catalogue(catalogue).sizes
    except SimulationError as error:
        raise CliError(str(error)) from error

    def find(version: ModelVersionView) -> int | None:
        model = version.spec.model or ""
        return (
            given.get(version.key.name)
            or version.status.size_bytes
            or usual.get(model)
            or usual.get(model.rpartition("/")[2])
        )

    return find


def _parse_sizes(sizes: Sequence[str]) -> Mapping[str, int]:
    found = {}
    for text in sizes:
        name, _, amount = text.partition("=")
        try:
            found[name] = parse_bytes(amount)
        except ValueError as error:
            raise CliError(f"--size {text!r}: write NAME=16Gi: {error}") from error
        if not found[name]:
            raise CliError(f"--size {text!r}: a model has bytes")
    return found
