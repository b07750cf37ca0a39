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
FIRED = f'group by (alertname) (last_over_time(ALERTS{{alertstate="firing"}}[{MINUTES}m]))'


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(promtool()), *arguments], capture_output=True, text=True, check=False
    )


def run(*arguments: str) -> str:
    result = ask(*arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def play(name: str, series: dict[str, str], firing: list[str]) -> dict:
    """These fire at the end of the hour, one object each, and no other has fired within it."""
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {"expr": asked, "eval_time": f"{MINUTES}m", "exp_samples": expected}
            for asked in (FIRING, FIRED)
        ],
    }


def write(folder: Path, tests: list[dict]) -> Path:
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    file = folder / "scenes.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


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
    run("test", "rules", str(write(tmp_path, tests)))


def test_a_scene_in_which_an_alert_has_fired_and_ended_is_not_quiet(tmp_path):
    silent = {'modelcache_node_ready{node="n1"}': f"0x{MINUTES // 2} 1x{MINUTES // 2}"}
    scene = play("over", with_operator("", silent, fires=False), [])
    result = ask("test", "rules", str(write(tmp_path, [scene])))
    assert result.returncode == 1
    assert "ModelCacheAgentSilent" in result.stdout + result.stderr
