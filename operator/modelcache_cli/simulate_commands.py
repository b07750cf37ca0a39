"""The command line of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from modelcache_cli.errors import CliError
from modelcache_cli.options import fail
from modelcache_cli.simulate import SimulateRequest, make_trace, simulate_trace
from modelcache_cli.simulate_live import replay_live
from modelcache_simulator.catalogue import Relation
from modelcache_simulator.synthetic import Shape

simulate_app = typer.Typer()


@simulate_app.command()
def simulate(  # noqa: PLR0913, PLR0917 - one parameter for each option
    trace: Annotated[
        Path | None,
        typer.Option(
            help="CSV with the columns time and model (and seconds), GenTD26's, or an agent's "
            "input log (.jsonl)."
        ),
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<str>",
            help="Tiers of a node: gpu=80Gi,host=512Gi,disk=4Ti. Repeat it for more.",
        ),
    ] = None,
    live: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="<path>",
            help="In place of a trace, an agent's input log: make its decisions again, and compare "
            "what its arrivals let one expect with what was measured. Repeat it for more.",
        ),
    ] = None,
    policy: Annotated[str, typer.Option(help="Policies, separated by commas.")] = "value,lru",
    catalog: Annotated[
        Path | None, typer.Option(help="YAML: sizes of models, costs of tiers. Default: built in.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="How often sizes are drawn that nobody states.")
    ] = 1,
    relation: Annotated[
        Relation, typer.Option(help="How drawn sizes go with popularity.")
    ] = Relation.INDEPENDENT,
    idle: Annotated[
        str, typer.Option(help="A model's pods go after so long without a request.")
    ] = "5m",
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="Let go what a pod uses, as no agent does.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Runs at once. Default: one for each core.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the table as text and JSON.")] = None,
    plots: Annotated[
        bool, typer.Option("--plots", help="Pictures into that folder; needs the extra plots.")
    ] = False,
) -> None:
    """Replay a trace on simulated nodes, by the agent's own code, and compare policies.

    LOAD is what a pod waits on the average because the fastest tier lacks its model.
    """
    if live:
        _replay(live, is_alone=trace is None and not capacity)
        return
    if trace is None or not capacity:
        fail(CliError("give a --trace and at least one --capacity, or an agent's log by --live"))
    request = SimulateRequest(
        trace=trace,
        capacities=tuple(capacity),
        policies=policy,
        catalogue=catalog,
        relation=relation,
        seeds=seeds,
        idle=idle,
        protects_attached=not unprotected,
        processes=processes,
        out=out,
        draws_plots=plots,
    )
    _say(lambda: simulate_trace(request))


@simulate_app.command("make-trace")
def make_synthetic_trace(  # noqa: PLR0913, PLR0917 - one parameter for each option
    out: Annotated[Path, typer.Option(help="The CSV file to write.")],
    models: Annotated[int, typer.Option(help="How many models.")] = 100,
    requests: Annotated[int, typer.Option(help="How many requests.")] = 100_000,
    gap: Annotated[float, typer.Option(help="Mean seconds between requests.")] = 60.0,
    duration: Annotated[float, typer.Option(help="Mean seconds that a request takes.")] = 30.0,
    zipf: Annotated[float, typer.Option(help="Exponent of popularity; 0: all alike.")] = 0.9,
    diurnal: Annotated[float, typer.Option(help="0: no nights, 1: hardly a request then.")] = 0.5,
    shift: Annotated[
        float, typer.Option(help="Hours after which favourites change; 0: never.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same trace.")] = 0,
) -> None:
    """Write a synthetic trace for `simulate`."""
    shape = Shape(models, requests, gap, duration, zipf, diurnal, shift * 3600)
    _say(lambda: make_trace(shape, seed, out))


def _replay(logs: list[Path], *, is_alone: bool) -> None:
    if not is_alone:
        fail(CliError("--live replays what one node did: leave out --trace and --capacity"))
    try:
        told, is_alike = replay_live(logs)
    except CliError as error:
        fail(error)
    print(told, end="")
    if not is_alike:
        raise typer.Exit(1)


def _say(work: Callable[[], str]) -> None:
    try:
        print(work(), end="")
    except CliError as error:
        fail(error)
