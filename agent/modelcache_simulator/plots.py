"""Pictures of a study, for those who installed the extra `plots`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from modelcache_agent.decide.gpu.compaction import FRAGMENTATION_THRESHOLD
from modelcache_simulator.comparison import Row
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.runs import Result
from modelcache_simulator.tally import Hour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DAY_HOURS = 24
# From so many days on, single hours are a blur.
_MANY_DAYS = 4


def draw_plots(
    rows: Sequence[Row], results: Sequence[Result], out: Path, capacities: Sequence[str]
) -> None:
    """Write PNGs into the folder; curves over time are those of the first seed and capacity.

    Fragmentation is drawn where there is a card.

    Raises:
        SimulationError: matplotlib is not installed.
    """
    first = _of((result for result in results if result.run.seed == 0), capacities[0])
    _save(out / "hit-rate.png", 1, lambda panels: _draw_hits(panels[0], rows, capacities))
    _save(out / "load-seconds.png", 1, lambda panels: _draw_load(panels[0], first, capacities[0]))
    tiers = len(first[0].summary.hit_rates) if first else 0
    if tiers:
        _save(
            out / "occupancy.png",
            tiers,
            lambda panels: _draw_occupancy(panels, first, capacities[0]),
        )
    if any(one.summary.fragmentation is not None for one in first):
        _save(
            out / "fragmentation.png",
            1,
            lambda panels: _draw_fragmentation(panels[0], first, capacities[0]),
        )


def _save(path: Path, count: int, draw: Callable[[Sequence[Axes]], None]) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SimulationError(
            "plots need matplotlib: pip install 'modelcache[cli,plots]', or leave out --plots"
        ) from error
    figure = Figure(figsize=(8, 4.5 if count == 1 else 2.4 * count), dpi=90, layout="constrained")
    panels: Any = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    draw(panels)
    for axes in panels:
        axes.grid(visible=True, alpha=0.3)
    panels[0].legend(fontsize="small")
    figure.savefig(path)


def _draw_hits(axes: Axes, rows: Iterable[Row], capacities: Sequence[str]) -> None:
    """All hits, in whatever tier, as a share of attaches; capacities as they were given."""
    found = {(row.policy, row.capacity): _hit_rate(row) for row in rows}
    for policy in sorted({policy for policy, _ in found}):
        heights = [100 * found[policy, capacity] for capacity in capacities]
        axes.plot(range(len(capacities)), heights, marker="o", label=policy)
    ticks = [capacity.replace(",", "\n") for capacity in capacities]
    axes.set_xticks(range(len(capacities)), ticks, fontsize="small")
    axes.set_ylabel("attaches found in any tier, %")


def _hit_rate(row: Row) -> float:
    return sum(
        interval.mean for name, interval in row.figures.items() if name.startswith("hit_rate_")
    )


def _draw_load(axes: Axes, results: Iterable[Result], capacity: str) -> None:
    for result in results:
        start, total = min(result.hours), 0.0
        sums = []
        for hour in sorted(result.hours):
            total += result.hours[hour].load_seconds
            sums.append(((hour - start) / _DAY_HOURS, total / 3600))
        axes.plot(*zip(*sums, strict=True), label=result.run.policy)
    axes.set_xlabel("days")
    axes.set_ylabel("hours that pods waited, in all")
    axes.set_title(capacity, fontsize="small")


def _draw_occupancy(panels: Sequence[Axes], results: Iterable[Result], capacity: str) -> None:
    """A panel for each tier, the fastest on top."""
    for result in results:
        for axes, tier in zip(panels, result.summary.hit_rates, strict=True):
            held = _average(result, partial(_read_held, tier=tier))
            axes.plot(*zip(*held, strict=True), label=result.run.policy)
            axes.set_ylim(bottom=0)
            axes.set_ylabel(f"{tier}, GiB held")
    panels[-1].set_xlabel("days")
    panels[0].set_title(capacity, fontsize="small")


def _read_held(seen: Hour, tier: str) -> float:
    """In GiB."""
    return seen.used_bytes[tier] / 2**30


def _draw_fragmentation(axes: Axes, results: Iterable[Result], capacity: str) -> None:
    """Of the card's free memory; above the threshold it is put in order."""
    for result in results:
        pieces = _average(result, lambda seen: seen.fragmentation or 0.0)
        axes.plot(*zip(*pieces, strict=True), label=result.run.policy)
    axes.axhline(FRAGMENTATION_THRESHOLD, color="grey", linestyle="--", label="threshold")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("days")
    axes.set_ylabel("1 - largest free piece / all that is free")
    axes.set_title(capacity, fontsize="small")


def _average(result: Result, read: Callable[[Hour], float]) -> list[tuple[float, float]]:
    """Means of the hours in which something was attached: of each day, if there are many."""
    start = min(result.hours)
    width = _DAY_HOURS if max(result.hours) - start >= _MANY_DAYS * _DAY_HOURS else 1
    buckets: dict[int, list[float]] = {}
    for hour, seen in sorted(result.hours.items()):
        buckets.setdefault((hour - start) // width, []).append(read(seen))
    return [((b + 0.5) * width / _DAY_HOURS, fmean(values)) for b, values in buckets.items()]


def _of(results: Iterable[Result], capacity: str) -> list[Result]:
    found = [result for result in results if result.run.capacity == capacity and result.hours]
    return sorted(found, key=lambda result: result.run.policy)
