"""What a study showed: a row for each policy and capacity, with intervals over seeds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from modelcache_simulator.belady import BELADY
from modelcache_simulator.intervals import Interval, find_interval
from modelcache_simulator.runs import Result
from modelcache_simulator.tally import Summary

REGRET: Final = "regret_seconds_per_attach"
FRAGMENTATION: Final = "fragmentation"
MOVED: Final = "moved_bytes"
_FIGURES: Final[Mapping[str, Callable[[Summary], float]]] = {
    "mean_access_seconds": lambda seen: seen.mean_access_seconds,
    "load_seconds_per_attach": lambda seen: seen.load_seconds_per_attach,
    "load_seconds_p95": lambda seen: seen.load_seconds_p95,
    "load_seconds_p99": lambda seen: seen.load_seconds_p99,
    "evictions_per_hour": lambda seen: seen.evictions_per_hour,
    "bypasses": lambda seen: seen.bypasses,
    "refusals": lambda seen: seen.refusals,
    "store_bytes": lambda seen: seen.store_bytes,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one node. `figures` by name, with 95 % intervals over the seeds."""

    capacity: str
    policy: str
    seeds: int
    attaches: int
    figures: Mapping[str, Interval]


def compare(results: Iterable[Result]) -> tuple[Row, ...]:
    """Rows by capacity, as they were asked for, least load-seconds first."""
    found = {result.run: result.summary for result in results}
    groups: dict[tuple[str, str], list[tuple[Summary, Summary]]] = {}
    for run in sorted(found, key=lambda run: run.seed):
        bound = found[run._replace(policy=BELADY)]
        groups.setdefault((run.capacity, run.policy), []).append((found[run], bound))
    rows = [
        Row(capacity, policy, len(pairs), pairs[0][0].attaches, _figures(pairs))
        for (capacity, policy), pairs in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.capacity, _cost(row), row.policy)))


def _cost(row: Row) -> float:
    return row.figures["load_seconds_per_attach"].mean


def _figures(pairs: list[tuple[Summary, Summary]]) -> dict[str, Interval]:
    seen = [summary for summary, _ in pairs]
    figures = {}
    for tier in seen[0].hit_rates:
        figures[f"hit_rate_{tier}"] = find_interval([each.hit_rates[tier] for each in seen])
        figures[f"byte_hit_rate_{tier}"] = find_interval(
            [each.byte_hit_rates[tier] for each in seen]
        )
    for name, read in _FIGURES.items():
        figures[name] = find_interval([read(each) for each in seen])
    pieces = [each.fragmentation for each in seen if each.fragmentation is not None]
    if pieces:
        figures[FRAGMENTATION] = find_interval(pieces)
        figures[MOVED] = find_interval([each.moved_bytes for each in seen])
    figures[REGRET] = find_interval(
        [own.load_seconds_per_attach - best.load_seconds_per_attach for own, best in pairs]
    )
    return figures


def to_document(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows as JSON can hold them."""
    return [
        {
            **asdict(row),
            "figures": {name: interval._asdict() for name, interval in row.figures.items()},
        }
        for row in rows
    ]
