"""`simulate` and `make-trace`: which policy and which capacity a trace would want."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from modelcache_api.durations import parse_duration
from modelcache_api.quantities import parse_bytes
from modelcache_cli.errors import CliError
from modelcache_simulator.agent_log import SUFFIX, find_log_sizes, read_log
from modelcache_simulator.catalogue import Relation, load_catalogue
from modelcache_simulator.comparison import compare, to_document
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.levels import TIERS
from modelcache_simulator.plots import draw_plots
from modelcache_simulator.report import render_table
from modelcache_simulator.runs import Result, Study, find_sizes, list_runs, run_study
from modelcache_simulator.synthetic import Shape, make_requests
from modelcache_simulator.trace import write_requests


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """What the person gave, as it was written."""

    trace: Path
    capacities: tuple[str, ...]
    policies: str
    catalogue: Path | None
    relation: Relation
    seeds: int
    idle: str
    protects_attached: bool
    processes: int | None
    out: Path | None
    draws_plots: bool = False


def simulate_trace(request: SimulateRequest) -> str:
    """Run the study, with a progress bar on stderr; the table, and the files under `out`.

    Raises:
        CliError: what was given cannot be simulated.
    """
    if request.draws_plots and request.out is None:
        raise CliError("--plots needs a folder: give --out")
    try:
        study = _make_study(request)
        runs = list_runs(study)
        sizes, drawn = find_sizes(study)
        if drawn:
            print(
                f"note: {drawn} models of the trace are not in the catalogue: their sizes are "
                f"drawn from it ({request.seeds} seed(s), {request.relation})",
                file=sys.stderr,
            )
        results: list[Result] = []
        with typer.progressbar(length=len(runs), label="simulating", file=sys.stderr) as bar:
            for result in run_study(study, sizes, request.processes):
                results.append(result)
                bar.update(1)
        rows = compare(results)
        table = render_table(rows)
        if request.out is not None:
            request.out.mkdir(parents=True, exist_ok=True)
            (request.out / "table.txt").write_text(table, encoding="utf-8")
            document = json.dumps(to_document(rows), indent=2) + "\n"
            (request.out / "table.json").write_text(document, encoding="utf-8")
            if request.draws_plots:
                draw_plots(rows, results, request.out, request.capacities)
    except (SimulationError, OSError) as error:
        raise CliError(str(error)) from error
    return table


def make_trace(shape: Shape, seed: int, out: Path) -> str:
    """Write a synthetic trace; one sentence about it.

    Raises:
        CliError: the shape is none, or the file cannot be written.
    """
    try:
        count = write_requests(out, make_requests(shape, seed))
    except OSError as error:
        raise CliError(f"cannot write {out}: {error.strerror}") from error
    except SimulationError as error:
        raise CliError(str(error)) from error
    return f"wrote {count} requests to {out}\n"


def _make_study(request: SimulateRequest) -> Study:
    try:
        idle_seconds = float(parse_duration(request.idle))
        capacities = {text: parse_capacities(text) for text in request.capacities}
    except ValueError as error:
        raise CliError(str(error)) from error
    catalogue = load_catalogue(request.catalogue)
    if request.trace.suffix == SUFFIX:
        known = find_log_sizes(read_log(request.trace))
        catalogue = replace(catalogue, sizes={**catalogue.sizes, **known})
    return Study(
        request.trace,
        idle_seconds,
        capacities,
        tuple(name.strip() for name in request.policies.split(",")),
        catalogue,
        request.relation,
        request.seeds,
        request.protects_attached,
    )


def parse_capacities(text: str) -> Mapping[str, int]:
    """Bytes by tier of a text such as `gpu=80Gi,host=512Gi,disk=4Ti`.

    Raises:
        ValueError: it is none; the message says how to write it.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        tier, _, amount = (piece.strip() for piece in part.partition("="))
        if tier not in TIERS or not amount or tier in found:
            raise ValueError(
                f"{part!r} in --capacity {text!r}: write each of {', '.join(TIERS)} at most once, "
                "for example gpu=80Gi,host=512Gi,disk=4Ti"
            )
        if not (size := parse_bytes(amount)):
            raise ValueError(f"--capacity {text!r}: leave out a tier of 0 bytes")
        found[tier] = size
    return found
