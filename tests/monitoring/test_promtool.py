"""Prometheus's own tool reads the rules, and plays an hour for each alert."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from fakes.alert_scenes import MINUTES, SCENES, with_operator
from modelcache_testbed.programs import promtool

ALERTS = (
    Path(__file__).parents[2] / "charts" / "modelcache" / "files" / "monitoring" / "alerts.yaml"
)
OBJECTS = 'count by (alertname, namespace, name, node) (ALERTS{alertstate="firing"})'
FIRING = f"count by (alertname) ({OBJECTS})"


def run(*arguments: str) -> str:
    result = subprocess.run(
        [str(promtool()), *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def play(name: str, series: dict[str, str], firing: list[str]) -> dict:
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": FIRING,
                "eval_time": f"{MINUTES}m",
                "exp_samples": [
                    {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing
                ],
            }
        ],
    }


def test_promtool_accepts_the_rules():
    printed = run("check", "rules", "--lint=all", "--lint-fatal", str(ALERTS))
    assert f"SUCCESS: {len(SCENES)} rules found" in printed


@pytest.mark.parametrize("alert", SCENES)
def test_an_alert_fires_alone_on_what_it_is_for_and_on_nothing_else(alert, tmp_path):
    tests = []
    for number, scene in enumerate(SCENES[alert]):
        fires = with_operator(alert, scene.fires, fires=True)
        quiet = with_operator(alert, scene.quiet, fires=False)
        tests.append(play(f"{alert} fires: {number}", fires, [alert]))
        tests.append(play(f"{alert} is quiet: {number}", quiet, []))
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    file = tmp_path / "scenes.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    run("test", "rules", str(file))
