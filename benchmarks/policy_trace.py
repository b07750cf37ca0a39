"""policy-trace: how long pods wait for models under `value`, against `lru`, on a recorded trace.

The trace is GenTD26's (docs/policies-on-a-trace.md), read from MODELCACHE_TRACE; without it, a
synthetic one of the same shape. Every cell is a capacity, an idle gap, a relation of size and
popularity, with or without protection of what pods use; sizes are drawn by seed. The tier may leave
newcomers out, as host and GPU memory. Only the second half of the time span counts; the first warms
up, and is what parameters were chosen on (MODELCACHE_TRACE_HALF=first shows it). No clock is read:
the same trace gives the same figures on any machine.

MODELCACHE_TRACE_SEEDS and MODELCACHE_TRACE_POLICIES make it smaller or larger.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

from figure import OUT, Figure, describe_machine

from modelcache_agent.decide.policies import find_policy
from modelcache_simulator.catalogue import Relation, draw_sizes, load_catalogue
from modelcache_simulator.intervals import Interval, find_interval
from modelcache_simulator.replay import NodePlan, replay
from modelcache_simulator.sessions import Attach, Event, follow_sessions
from modelcache_simulator.synthetic import Shape, make_requests
from modelcache_simulator.trace import read_requests, write_requests

SHARES = (0.15, 0.30, 0.45, 0.60)
IDLE_SECONDS = (60.0, 300.0, 1800.0)
SEEDS = 20
TIER = "host"


@dataclass(frozen=True)
class Cell:
    share: float
    idle_seconds: float
    relation: Relation
    is_pinned: bool


@dataclass(frozen=True)
class Job:
    trace: Path
    cell: Cell
    seed: int
    policies: tuple[str, ...]
    half: str


def measure() -> Figure:
    seeds = int(os.environ.get("MODELCACHE_TRACE_SEEDS", str(SEEDS)))
    policies = tuple(os.environ.get("MODELCACHE_TRACE_POLICIES", "lru,value").split(","))
    half = os.environ.get("MODELCACHE_TRACE_HALF", "second")
    with tempfile.TemporaryDirectory() as folder:
        trace = _find_trace(Path(folder))
        found = _run(trace, seeds, policies, half)
    OUT.mkdir(exist_ok=True)
    (OUT / "policy-trace-cells.json").write_text(json.dumps(_to_document(found), indent=1) + "\n")
    for policy in policies[1:]:
        _print_cells(found, policy)
    pinned, unpinned = (_ratios(found, "value", is_pinned=flag) for flag in (True, False))
    means = statistics.fmean(pinned), statistics.fmean(unpinned)
    return Figure(
        name="policy-trace",
        unit="of lru",
        ours=round(means[0], 3),
        peers={"lru": 1.0, "value, unpinned": round(means[1], 3)},
        ceiling=None,
        rounds=seeds,
        spread={
            name: [round(min(values), 3), round(max(values), 3)]
            for name, values in (("ours", pinned), ("value, unpinned", unpinned))
        },
        ratios={"lru": round(means[0], 3)},
        machine=describe_machine(),
        notes=f"mean load-seconds of value over lru's: {means[0]:.3f} pinned (aim 0.92), "
        f"{means[1]:.3f} unpinned (aim 0.87); cells wholly above 1: "
        f"{_count_lost(found, 'value')} (aim 0); {seeds} seeds, {half} half",
    )


def _find_trace(folder: Path) -> Path:
    given = os.environ.get("MODELCACHE_TRACE")
    if given:
        return Path(given)
    print("  MODELCACHE_TRACE is not set: a synthetic trace of the same shape", file=sys.stderr)
    path = folder / "trace.csv"
    shape = Shape(
        models=87,
        requests=26_823,
        mean_gap_seconds=74.0,
        mean_seconds=30.0,
        zipf=1.3,
        diurnal=0.6,
        shift_seconds=5 * 86_400.0,
    )
    write_requests(path, make_requests(shape, seed=0))
    return path


def _run(
    trace: Path, seeds: int, policies: tuple[str, ...], half: str
) -> dict[Cell, list[dict[str, float]]]:
    """Load-seconds by policy, for each cell and seed."""
    cells = [
        Cell(*parts) for parts in product(SHARES, IDLE_SECONDS, tuple(Relation), (True, False))
    ]
    # Jobs that read the same trace come together: a process keeps what it has read.
    cells.sort(key=lambda cell: cell.idle_seconds)
    jobs = [Job(trace, cell, seed, policies, half) for cell in cells for seed in range(seeds)]
    found: dict[Cell, list[dict[str, float]]] = {cell: [] for cell in cells}
    with ProcessPoolExecutor() as pool:
        for number, (job, sums) in enumerate(
            zip(jobs, pool.map(run_job, jobs, chunksize=seeds), strict=True), start=1
        ):
            found[job.cell].append(sums)
            if number % (len(jobs) // 20 or 1) == 0:
                print(f"  {number}/{len(jobs)}", flush=True)
    return found


def run_job(job: Job) -> dict[str, float]:
    events, middle = read_events(job.trace, job.cell.idle_seconds)
    counts = Counter(event.model for event in events if isinstance(event, Attach))
    catalogue = load_catalogue(None)
    sizes = draw_sizes(counts, catalogue.sizes, job.cell.relation, job.seed)
    plan = NodePlan(
        {TIER: int(job.cell.share * sum(sizes.values()))},
        sizes,
        catalogue.costs,
        protects_attached=job.cell.is_pinned,
        counts_from=middle if job.half == "second" else -math.inf,
        counts_to=middle if job.half == "first" else math.inf,
    )
    return {
        name: replay(events, plan, find_policy(name)).summarise().load_seconds
        for name in job.policies
    }


@lru_cache(maxsize=1)
def read_events(trace: Path, idle_seconds: float) -> tuple[tuple[Event, ...], float]:
    """The events, and the middle of the time span of requests."""
    times = [request.at for request in read_requests(trace)]
    events = tuple(follow_sessions(read_requests(trace), idle_seconds))
    return events, (times[0] + times[-1]) / 2


def _cell_ratios(sums: Iterable[dict[str, float]], policy: str) -> list[float]:
    return [each[policy] / each["lru"] for each in sums]


def _ratios(
    found: dict[Cell, list[dict[str, float]]], policy: str, *, is_pinned: bool
) -> list[float]:
    return [
        statistics.fmean(_cell_ratios(sums, policy))
        for cell, sums in found.items()
        if cell.is_pinned == is_pinned
    ]


def _count_lost(found: dict[Cell, list[dict[str, float]]], policy: str) -> int:
    return sum(find_interval(_cell_ratios(sums, policy)).low > 1.0 for sums in found.values())


def _print_cells(found: dict[Cell, list[dict[str, float]]], policy: str) -> None:
    print(f"\n  load-seconds of {policy} over those of lru: mean [95 % interval over seeds]")
    for cell, sums in found.items():
        mean, low, high = find_interval(_cell_ratios(sums, policy))
        print(
            f"  {cell.relation:<14} idle {cell.idle_seconds:>5.0f} s  capacity {cell.share:>4.0%}  "
            f"{'pinned' if cell.is_pinned else 'unpinned':<8}  {mean:.3f} [{low:.3f}, {high:.3f}]"
            f"{'  WORSE' if low > 1.0 else ''}"
        )


def _to_document(found: dict[Cell, list[dict[str, float]]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for cell, sums in found.items():
        policies = [name for name in sums[0] if name != "lru"]
        ratios: dict[str, Interval] = {
            name: find_interval(_cell_ratios(sums, name)) for name in policies
        }
        rows.append(asdict(cell) | {name: each._asdict() for name, each in ratios.items()})
    return rows
