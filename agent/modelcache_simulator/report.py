"""The comparison as text for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from modelcache_api.quantities import format_bytes
from modelcache_simulator.comparison import FRAGMENTATION, MOVED, REGRET, Row
from modelcache_simulator.intervals import Interval
from modelcache_simulator.levels import TIERS

_Show = Callable[[float], str]
# Heading, figure, how a value is written.
_COLUMNS: Final[Sequence[tuple[str, str, _Show]]] = (
    ("T s", "mean_access_seconds", lambda value: f"{value:.2f}"),
    ("LOAD s", "load_seconds_per_attach", lambda value: f"{value:.2f}"),
    ("P95 s", "load_seconds_p95", lambda value: f"{value:.0f}"),
    ("P99 s", "load_seconds_p99", lambda value: f"{value:.0f}"),
    ("EVICT/h", "evictions_per_hour", lambda value: f"{value:.2f}"),
    ("BYPASS", "bypasses", lambda value: f"{value:.0f}"),
    ("REFUSED", "refusals", lambda value: f"{value:.0f}"),
    ("STORE", "store_bytes", lambda value: format_bytes(round(value))),
    ("REGRET s", REGRET, lambda value: f"{value:.2f}"),
)
# Of nodes with a card alone.
_OF_A_CARD: Final[Sequence[tuple[str, str, _Show]]] = (
    ("FRAG", FRAGMENTATION, lambda value: f"{value:.2f}"),
    ("MOVED", MOVED, lambda value: format_bytes(round(value))),
)


def render_table(rows: Iterable[Row]) -> str:
    """Lines of columns; after a mean of several seeds, half the width of its interval."""
    found = tuple(rows)
    tiers = [tier for tier in TIERS if any(f"hit_rate_{tier}" in row.figures for row in found)]
    heading = ["CAPACITY", "POLICY"]
    heading += [f"{tier.upper()} hits (bytes)" for tier in tiers]
    has_card = any(FRAGMENTATION in row.figures for row in found)
    columns = (*_COLUMNS, *(_OF_A_CARD if has_card else ()))
    heading += [name for name, _, _ in columns]
    lines = [heading, *(_cells(row, tiers, columns) for row in found)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def _cells(row: Row, tiers: Sequence[str], columns: Sequence[tuple[str, str, _Show]]) -> list[str]:
    hits = []
    for tier in tiers:
        if f"hit_rate_{tier}" not in row.figures:
            hits.append("")
            continue
        rate, of_bytes = row.figures[f"hit_rate_{tier}"], row.figures[f"byte_hit_rate_{tier}"]
        hits.append(f"{_percent(rate)} ({of_bytes.mean:.0%})")
    figures = [
        _with_interval(row.figures[name], show) if name in row.figures else ""
        for _, name, show in columns
    ]
    return [row.capacity, row.policy, *hits, *figures]


def _percent(interval: Interval) -> str:
    half = interval.high - interval.mean
    return f"{interval.mean:.1%}" + (f" ±{100 * half:.1f}" if half else "")


def _with_interval(interval: Interval, show: _Show) -> str:
    half = interval.high - interval.mean
    return show(interval.mean) + (f" ±{show(half)}" if half else "")
