"""Pictures of a study, for those who installed the extra `plots`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelcache_agent.decide.gpu.compaction import FRAGMENTATION_THRESHOLD
from modelcache_simulator.comparison import Row
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.runs import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DAY_HOURS = 24


def draw_plots(
    rows: Sequence[Row], results: Sequence[Result], out: Path, capacities: Sequence[str]
) -> None:
    """Write PNGs into the folder; curves over time are those of the first seed and capacity.

    Fragmentation is drawn where there is a card.

    Raises:
        SimulationError: matplotlib is not installed.
    """
    first = [result for result in results if result.run.seed == 0]
    _save(out / "hit-rate.png", lambda axes: _draw_hits(axes, rows, capacities))
    _save(out / "load-seconds.png", lambda axes: _draw_load(axes, first, capacities[0]))
    _save(out / "occupancy.png", lambda axes: _draw_occupancy(axes, first, capacities[0]))
    if any(one.summary.fragmentation is not None for one in _of(first, capacities[0])):
        _save(
            out / "fragmentation.png",
            lambda axes: _draw_fragmentation(axes, first, capacities[0]),
        )


def _save(path: Path, draw: Callable[[Axes], None]) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SimulationError(
            "plots need matplotlib: pip install 'modelcache[cli,plots]', or leave out --plots"
        ) from error
    figure = Figure(figsize=(8, 4.5), dpi=90, layout="constrained")
    axes: Any = figure.add_subplot()
    draw(axes)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path)


def _draw_hits(axes: Axes, rows: Iterable[Row], capacities: Sequence[str]) -> None:
    """All hits, in whatever tier, as a share of attaches; capacities as they were given."""
    found = {(row.policy, row.capacity): _hit_rate(row) for row in rows}
    for policy in sorted({policy for policy, _ in found}):
        heights = [100 * found[policy, capacity] for capacity in capacities]
        axes.plot(range(len(capacities)), heights, marker="o", label=policy)
    axes.set_xticks(range(len(capacities)), capacities, fontsize="small")
    axes.set_ylabel("attaches found in any tier, %")


def _hit_rate(row: Row) -> float:
    return sum(
        interval.mean for name, interval in row.figures.items() if name.startswith("hit_rate_")
    )


def _draw_load(axes: Axes, results: Iterable[Result], capacity: str) -> None:
    for result in _of(results, capacity):
        start, total = min(result.hours), 0.0
        sums = []
        for hour in sorted(result.hours):
            total += result.hours[hour].load_seconds
            sums.append(((hour - start) / _DAY_HOURS, total / 3600))
        axes.plot(*zip(*sums, strict=True), label=result.run.policy)
    axes.set_xlabel("days")
    axes.set_ylabel("hours that pods waited, in all")
    axes.set_title(capacity, fontsize="small")


def _draw_occupancy(axes: Axes, results: Iterable[Result], capacity: str) -> None:
    for result in _of(results, capacity):
        start = min(result.hours)
        for tier in result.hours[start].used_bytes:
            points = [
                ((hour - start) / _DAY_HOURS, seen.used_bytes[tier] / 2**30)
                for hour, seen in sorted(result.hours.items())
            ]
            axes.plot(*zip(*points, strict=True), label=f"{result.run.policy}, {tier}", linewidth=1)
    axes.set_yscale("log")
    axes.set_xlabel("days")
    axes.set_ylabel("GiB held")
    axes.set_title(capacity, fontsize="small")


def _draw_fragmentation(axes: Axes, results: Iterable[Result], capacity: str) -> None:
    """Of the card's free memory; above the threshold it is put in order."""
    for result in _of(results, capacity):
        start = min(result.hours)
        points = [
            ((hour - start) / _DAY_HOURS, seen.fragmentation)
            for hour, seen in sorted(result.hours.items())
        ]
        axes.plot(*zip(*points, strict=True), label=result.run.policy, linewidth=1)
    axes.axhline(FRAGMENTATION_THRESHOLD, color="grey", linestyle="--", label="threshold")
    axes.set_ylim(0, 1)
    axes.set_xlabel("days")
    axes.set_ylabel("1 - largest free piece / all that is free")
    axes.set_title(capacity, fontsize="small")


def _of(results: Iterable[Result], capacity: str) -> list[Result]:
    found = [result for result in results if result.run.capacity == capacity and result.hours]
    return sorted(found, key=lambda result: result.run.policy)
