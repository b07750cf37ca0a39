"""Alerts and dashboard ask for series that exist, by labels and words that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from fakes.metric_catalogue import (
    TARGET_LABELS,
    groupings_in,
    list_families,
    list_series,
    names_in,
    selectors_in,
)
from modelcache_agent.decide.measures import EvictionCause, LoadSource
from modelcache_api.names import EntryState, Reason, Tier, Track
from modelcache_chart.dashboard import read_rows
from modelcache_operator.decide.warmth import Warmth

ROOT = Path(__file__).parents[3]
FILES = ROOT / "charts" / "modelcache" / "files" / "monitoring"
RUNBOOKS = ROOT / "docs" / "runbooks.md"
SERIES = list_series()
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
QUERIES = [
    pytest.param(query, id=f"{panel.title}: {legend}")
    for row in read_rows()
    for panel in row.panels
    for legend, query in panel.queries.items()
]
EXPRESSIONS = [pytest.param(rule["expr"], id=name) for name, rule in ALERTS.items()] + QUERIES
WORDS = {
    "reason": {*Reason, *EvictionCause},
    "state": {*EntryState, "wanted", "ready", "failed"},
    "tier": {tier.label_value for tier in Tier},
    "source": set(LoadSource),
    "result": {"hit", "miss", "success", "retry", "bug"},
    "warmth": set(Warmth),
    "track": set(Track),
    "certificate": {"serving", "authority"},
    "kind": {"capacity", "used", "reserved", "pending_release", "quarantined", "free", "pinned"},
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_reads_series_that_exist(expression):
    read = names_in(expression)
    assert read
    assert read <= SERIES.keys(), read - SERIES.keys()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_selects_by_labels_and_words_that_are_there(expression):
    for name, label, operator, value in selectors_in(expression):
        assert label in SERIES[name], f"{name} has no label {label}"
        wanted = value.split("|") if "~" in operator else [value]
        for word in wanted:
            found = [known for known in WORDS[label] if re.fullmatch(word, known)]
            assert found, f"{name}: {label} is never {word}"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_groups_by_labels_that_its_series_have(expression):
    known = TARGET_LABELS.union(*(SERIES[name] for name in names_in(expression)))
    assert groupings_in(expression) <= known


def test_the_legend_of_a_query_names_labels_that_it_keeps():
    for row in read_rows():
        for panel in row.panels:
            for legend, query in panel.queries.items():
                shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
                assert shown <= groupings_in(query), f"{panel.title}: {legend}"


def test_a_rollout_counts_as_stuck_by_every_word_but_those_of_progress_and_of_other_alerts():
    selectors = selectors_in(ALERTS["ModelCacheRolloutStuck"]["expr"])
    (words,) = [
        value for name, _, operator, value in selectors if "rollout" in name and operator == "!~"
    ]
    progress = {Reason.STEP_TAKEN, Reason.WEIGHT_REACHED}
    of_others = {Reason.CANARY_EXPIRED, Reason.QUOTA_EXCEEDED}
    assert set(words.split("|")) == progress | of_others
    assert Reason.CANARY_EXPIRED in ALERTS["ModelCacheCanaryForgotten"]["expr"]
    assert "quota_exceeded" in ALERTS["ModelCacheQuotaRefused"]["expr"]


def read_runbooks() -> tuple[str, dict[str, str]]:
    """The index, and the sections by their headings."""
    _, index, *sections = RUNBOOKS.read_text().split("\n## ")
    return index, {section.partition("\n")[0]: section for section in sections}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_runbook_and_says_what_is_wrong(name):
    rule = ALERTS[name]
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
    assert name in read_runbooks()[1]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]


def test_a_runbook_says_what_to_look_at_and_what_to_do():
    _, sections = read_runbooks()
    assert list(sections) == list(ALERTS)
    for name, section in sections.items():
        assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.MULTILINE) == ["Means", "Look", "Do"], (
            name
        )


def test_the_index_of_runbooks_has_each_alert_with_its_severity():
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \|", read_runbooks()[0], re.MULTILINE)
    assert rows == [
        (name, name.lower(), rule["labels"]["severity"]) for name, rule in ALERTS.items()
    ]


def test_runbooks_name_panels_that_are_on_the_dashboard():
    titles = {panel.title for row in read_rows() for panel in row.panels}
    for name, section in read_runbooks()[1].items():
        named = set(re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", section))
        assert named <= titles, f"{name}: {named - titles}"


def test_runbooks_and_alerts_name_reasons_that_exist():
    for reason in re.findall(r"reasons\.md#(\w+)", RUNBOOKS.read_text()):
        assert reason in {known.lower() for known in Reason}


def test_labels_in_descriptions_survive_the_expression():
    for name, rule in ALERTS.items():
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]))
        assert shown <= groupings_in(rule["expr"]), name


def test_the_page_of_metrics_lists_each_with_its_labels_and_nothing_else():
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(modelcache_\w+)` \| ([^|]*) \|", text, re.MULTILINE)
    told = {name: frozenset(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert len(rows) == len(told), "a metric is listed twice"
    expected = {
        f"{family.name}_total" if family.kind == "counter" else family.name: family.labels
        for family in list_families().values()
    }
    assert told == expected


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own():
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_query_of_the_dashboard_is_drawn():
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    drawn = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert sorted(drawn) == sorted(param.values[0] for param in QUERIES)
