"""Scenes that promtool plays are complete, and made of series that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fakes.alert_scenes import SCENES
from fakes.metric_catalogue import TARGET_LABELS, list_series, names_in, selectors_in
from modelcache_api.names import Reason

ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load((ROOT / "charts/modelcache/files/monitoring/alerts.yaml").read_text())
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
SERIES = list_series()
PLAYED = sorted(
    {
        series
        for scenes in SCENES.values()
        for scene in scenes
        for series in (*scene.fires, *scene.quiet)
    }
)


def test_every_alert_has_a_scene():
    assert sorted(SCENES) == sorted(ALERTS)


@pytest.mark.parametrize("series", PLAYED)
def test_a_scene_is_made_of_series_that_exist(series):
    (name,) = names_in(series)
    labels = {label for _, label, _, _ in selectors_in(series)}
    assert SERIES[name] <= labels | TARGET_LABELS
    assert labels <= SERIES[name] | TARGET_LABELS
    for _, label, _, value in selectors_in(series):
        assert label != "reason" or value in set(Reason)
