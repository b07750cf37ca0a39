"""One picture of what the dashboard shows of a span of time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from modelcache_chart.dashboard import Panel, Row, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

_COLUMNS = 3
_POINTS = 240
_LEGENDS = 9
# At least four readings of a Prometheus that reads each second.
_RATE_SECONDS = 15
_LABEL = re.compile(r"\{\{(\w+)\}\}")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_THOUSAND = 1024.0


class Asked(Protocol):
    """What answers queries: `modelcache_testbed.prometheus.Prometheus`."""

    def ask_range(
        self, query: str, *, start: float, end: float, step: float
    ) -> list[dict[str, Any]]:
        """The series of a query over a span (Unix seconds): `metric` and `values`."""


@dataclass(frozen=True)
class Span:
    """From when to when, in Unix seconds."""

    start: float
    end: float

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(1.0, (self.end - self.start) / _POINTS)

    def settle(self, query: str) -> str:
        """The query with what Grafana puts for its variables."""
        rate = max(_RATE_SECONDS, math.ceil(4 * self.step))
        whole = math.ceil(self.end - self.start)
        return query.replace("$__rate_interval", f"{rate}s").replace("$__range", f"{whole}s")


@dataclass(frozen=True)
class Curve:
    """One series; `values` are NaN where there is nothing."""

    legend: str
    seconds: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def is_empty(self) -> bool:
        """True without a single number."""
        return not any(math.isfinite(value) for value in self.values)


def draw_dashboard(prometheus: Asked, span: Span, path: Path) -> list[str]:
    """Write the picture as PNG; return the queries that have nothing to show: "title: legend".

    Raises:
        TestbedError: Prometheus refuses a query.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - the demo without a picture goes without

    rows = read_rows()
    heights = [math.ceil(len(row.panels) / _COLUMNS) for row in rows]
    figure = Figure(figsize=(18, 3.2 * sum(heights)), dpi=70, layout="constrained")
    parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
    empty = []
    for row, height, part in zip(rows, heights, parts, strict=True):
        part.suptitle(row.title, fontweight="bold")
        empty += _draw_row(prometheus, span, row, part.subplots(height, _COLUMNS, squeeze=False))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return empty


def _draw_row(prometheus: Asked, span: Span, row: Row, grid: Any) -> list[str]:
    empty = []
    places: Sequence[Axes] = grid.flatten()
    for axes in places[len(row.panels) :]:
        axes.set_axis_off()
    for panel, axes in zip(row.panels, places, strict=False):
        read = read_panel(prometheus, span, panel)
        empty += [f"{panel.title}: {legend}" for legend, curves in read.items() if not curves]
        axes.set_title(panel.title, fontsize="small")
        _draw_panel(axes, panel, [curve for curves in read.values() for curve in curves], span)
    return empty


def read_panel(prometheus: Asked, span: Span, panel: Panel) -> dict[str, list[Curve]]:
    """The series with numbers of each query of a panel, by its legend."""
    return {
        legend: [
            curve
            for series in prometheus.ask_range(
                span.settle(query), start=span.start, end=span.end, step=span.step
            )
            if not (curve := _make_curve(legend, series, span)).is_empty
        ]
        for legend, query in panel.queries.items()
    }


def _make_curve(legend: str, series: dict[str, Any], span: Span) -> Curve:
    labels = series["metric"]
    points: list[tuple[float, float]] = []
    for at, value in series["values"]:
        if points and at - span.start - points[-1][0] > 1.5 * span.step:
            points.append((at - span.start - span.step, math.nan))  # a gap is no line
        points.append((at - span.start, float(value)))
    seconds, values = zip(*points, strict=True)
    filled = _LABEL.sub(lambda found: labels.get(found[1], ""), legend)
    return Curve(filled.strip(), seconds, values)


def _draw_panel(axes: Axes, panel: Panel, curves: Sequence[Curve], span: Span) -> None:
    axes.set_xlim(0, span.end - span.start)
    axes.grid(visible=True, alpha=0.3)
    axes.tick_params(labelsize="x-small")
    if not curves:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="grey")
        axes.set_yticks([])
        return
    if panel.kind == "stat":
        told = " ".join(tell(panel.unit, curve.values[-1]) for curve in curves)
        axes.text(0.5, 0.5, told, transform=axes.transAxes, ha="center", fontsize="xx-large")
        axes.set_yticks([])
        return
    for curve in curves:
        axes.plot(curve.seconds, curve.values, marker=".", markersize=2, label=curve.legend)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: tell(panel.unit, value))
    handles, legends = axes.get_legend_handles_labels()
    axes.legend(handles[:_LEGENDS], legends[:_LEGENDS], fontsize="x-small", loc="upper left")


def tell(unit: str, value: float) -> str:
    """A number as Grafana writes one of this unit.

    Raises:
        KeyError: no panel has had this unit so far.
    """
    return _UNITS[unit](value)


def _tell_bytes(value: float) -> str:
    size, rest = value, list(_BINARY)
    while abs(size) >= _THOUSAND and len(rest) > 1:
        size, rest = size / _THOUSAND, rest[1:]
    return f"{size:.3g} {rest[0]}"


def _tell_seconds(value: float) -> str:
    for size, word in ((86_400, "d"), (3600, "h"), (120, "min"), (1, "s")):
        if abs(value) >= size:
            return f"{value / (60 if word == 'min' else size):.3g} {word}"
    return f"{1000 * value:.3g} ms" if value else "0 s"


_UNITS: Mapping[str, Callable[[float], str]] = {
    "bytes": _tell_bytes,
    "Bps": lambda value: f"{_tell_bytes(value)}/s",
    "s": _tell_seconds,
    "percentunit": lambda value: f"{100 * value:.3g} %",
    "percent": lambda value: f"{value:.3g} %",
    "ops": lambda value: f"{value:.3g}/s",
    "reqps": lambda value: f"{value:.3g}/s",
    "short": lambda value: f"{value:.3g}",
}
