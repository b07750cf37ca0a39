"""The demo as a user runs it, and that nothing is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from modelcache_testbed.folders import state_folder


def run_demo(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "modelcache_testbed.demo", *arguments],
        env=os.environ | {"MODELCACHE_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def processes_under(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        if str(folder) in command and "pytest" not in command:
            found.append(command[:200])
    return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    assert folder != state_folder()
    return folder


@pytest.mark.parametrize(
    "profile", ["control-plane", pytest.param("nodes", marks=pytest.mark.nodes)]
)
def test_demo_shows_the_main_job_and_leaves_nothing(state: Path, profile: str) -> None:
    if profile == "nodes" and os.geteuid():
        pytest.skip("real nodes need root")
    try:
        result = run_demo(state, f"--profile={profile}")
        assert result.returncode == 0, result.stderr
        print(result.stderr)
        header, row = result.stdout.strip().splitlines()
        assert header.split()[:3] == ["NAMESPACE", "NAME", "STABLE"]
        assert row.split()[:4] == ["search", "minilm", "minilm-v1", "2/2"]
        assert "Cached" in row
        assert "Traceback" not in result.stderr
        if profile == "control-plane":
            assert ("one copy of" in result.stderr) != ("NOT SHOWN: HostTierUnfit" in result.stderr)
            assert result.stderr.count("the store has sent 0 bytes") == 2
    finally:
        down = run_demo(state, "--down")
    assert down.returncode == 0, down.stderr
    assert processes_under(state) == []
    left = [path for path in state.rglob("*") if path.is_dir() and path.name.startswith("demo")]
    assert left == []
