"""The picture of the dashboard: variables, gaps, units."""

from __future__ import annotations

import math

import pytest

from modelcache_chart.dashboard import Panel, read_rows
from modelcache_testbed.dashboard_picture import Span, draw_dashboard, read_panel, tell


class Answers:
    """The same series to every question."""

    def __init__(self, *series):
        self.series = list(series)
        self.asked = []

    def ask_range(self, query, *, start, end, step):
        self.asked.append((query, start, end, step))
        return self.series


def test_variables_of_grafana_are_filled_in():
    query = "rate(a[$__rate_interval]) + increase(b[$__range])"
    assert Span(1000, 1240).settle(query) == "rate(a[15s]) + increase(b[240s])"
    assert Span(0, 86_400).settle("a[$__rate_interval]") == "a[1440s]"


def test_a_curve_has_its_labels_and_a_gap_where_nothing_was_said():
    series = {"metric": {"tier": "disk"}, "values": [[10, "1"], [11, "2"], [20, "NaN"], [21, "3"]]}
    panel = Panel("Hits", "short", {"{{tier}}: {{reason}}": "a"})
    ((curve,),) = read_panel(Answers(series), Span(10, 22), panel).values()
    assert curve.legend == "disk:"
    assert curve.seconds == (0, 1, 9, 10, 11)
    assert [math.isnan(value) for value in curve.values] == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("unit", "value", "told"),
    [
        ("bytes", 0, "0 B"),
        ("bytes", 95_420_416, "91 MiB"),
        ("Bps", 2**30, "1 GiB/s"),
        ("s", 0.0021, "2.1 ms"),
        ("s", 90, "90 s"),
        ("s", 300, "5 min"),
        ("s", 7200, "2 h"),
        ("percentunit", 0.256, "25.6 %"),
        ("percent", 25, "25 %"),
        ("ops", 0.5, "0.5/s"),
        ("short", 3, "3"),
    ],
)
def test_numbers_are_told_in_the_unit_of_their_panel(unit, value, told):
    assert tell(unit, value) == told


QUERIES = {
    f"{panel.title}: {legend}": query
    for row in read_rows()
    for panel in row.panels
    for legend, query in panel.queries.items()
}


def test_a_query_without_a_number_is_named_though_its_panel_has_others(tmp_path):
    class AllButOne(Answers):
        def ask_range(self, query, **span):
            return [] if "peer_bytes" in query else super().ask_range(query, **span)

    answers = AllButOne({"metric": {}, "values": [[5, "1"]]})
    empty = draw_dashboard(answers, Span(0, 60), tmp_path / "dashboard.png")
    assert empty == [name for name, query in QUERIES.items() if "peer_bytes" in query]
    assert "Throughput: from nodes" in empty
    assert "Throughput: received" not in empty


def test_every_panel_is_drawn_and_queries_without_a_number_are_named(tmp_path):
    span = Span(0, 60)
    nothing = Answers({"metric": {}, "values": [[5, "NaN"]]})
    assert draw_dashboard(nothing, span, tmp_path / "empty.png") == list(QUERIES)
    assert (
        draw_dashboard(
            Answers({"metric": {}, "values": [[5, "1"]]}), span, tmp_path / "new/full.png"
        )
        == []
    )
    assert (tmp_path / "new/full.png").read_bytes().startswith(b"\x89PNG")
