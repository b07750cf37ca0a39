"""What the CSI process refuses before it serves, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("grpc")


def run(*arguments, **environment) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "modelcache_agent.entry", "csi", *arguments]
    env = {"PYTHONPATH": ":".join(sys.path), **environment}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=env)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([], "--node-name (or MODELCACHE_AGENT_NODE_NAME) is missing", id="no name"),
        pytest.param(["--node-name=n"], "--store (or MODELCACHE_AGENT_STORE)", id="no store"),
        pytest.param(
            ["--node-name=n", "--store={tmp}/none"], "none is no folder", id="C38 no such store"
        ),
        pytest.param(
            ["--node-name=n", "--store={tmp}", "--kubelet-dir={tmp}/none"],
            "--kubelet-dir {tmp}/none is no folder",
            id="C38 no such folder of the kubelet",
        ),
        pytest.param(["--sotre=x"], "unrecognized arguments", id="an unknown option"),
    ],
)
def test_it_refuses_in_one_line_with_code_2(tmp_path, arguments, says):
    done = run(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.returncode == 2
    assert says.format(tmp=tmp_path) in done.stderr
    assert done.stderr.count("\n") == 1


def test_C38_agent_and_driver_read_the_same_variable_and_the_flag_wins(tmp_path):
    shared = {"MODELCACHE_AGENT_STORE": str(tmp_path / "variable")}
    ready = ["--node-name=n", f"--kubelet-dir={tmp_path}"]
    assert "variable is no folder" in run(*ready, **shared).stderr
    assert "flag is no folder" in run(*ready, f"--store={tmp_path}/flag", **shared).stderr


def test_it_loads_no_client_of_kubernetes():
    code = (
        "import sys, modelcache_agent.volume.csi;"
        "print([n for n in ('kubernetes', 'aiohttp', 'pydantic') if n in sys.modules])"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env
    )
    assert shown.stdout.strip() == "[]"
