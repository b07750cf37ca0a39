"""The wait container's words and exit codes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from modelcache_agent.volume.wait import (
    EXIT_NO_VOLUME,
    EXIT_READY,
    EXIT_REFUSED,
    EXIT_TIMEOUT,
    Surroundings,
    wait_for_model,
)
from modelcache_api.names import Reason, VolumeState
from modelcache_api.volume_progress import VolumeProgress, describe_progress, encode_progress

MIB = 1 << 20
WAITING = VolumeProgress("search/minilm", VolumeState.WAITING, Reason.WAITING, "nobody looked yet")
LOADING = VolumeProgress(
    "search/minilm", VolumeState.DOWNLOADING, Reason.DOWNLOADING, "", 40, 90 * MIB
)


class PlayedPod:
    """Time passes only while the program sleeps; then the world goes on by one scene."""

    def __init__(self, volume, *scenes) -> None:
        self.volume, self.scenes, self.now, self.lines = volume, list(scenes), 0.0, []
        self.sleep(0)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        scene = self.scenes.pop(0) if len(self.scenes) > 1 else self.scenes[0]
        if scene == "ready":
            (self.volume / "model").mkdir(exist_ok=True)
        elif scene is not None:
            (self.volume / "status.json").write_bytes(encode_progress(scene))

    def wait(self, timeout: float | None = None) -> int:
        around = Surroundings(lambda: self.now, self.sleep, self.lines.append)
        return wait_for_model(self.volume, timeout, around)


def test_it_tells_each_change_once_and_ends_when_the_model_is_there(tmp_path):
    later = replace(LOADING, percent=80)
    pod = PlayedPod(tmp_path, WAITING, WAITING, LOADING, LOADING, later, "ready")
    assert pod.wait() == EXIT_READY
    assert [line.split(maxsplit=1)[1] for line in pod.lines] == [
        "search/minilm waiting: nobody looked yet",
        "search/minilm downloading [########............]  40%  36Mi of 90Mi",
        "search/minilm downloading [################....]  80%  72Mi of 90Mi",
        "search/minilm is ready  90Mi",
    ]


def test_it_goes_on_talking_while_nothing_changes(tmp_path):
    pod = PlayedPod(tmp_path, *[WAITING] * 400, "ready")
    assert pod.wait() == EXIT_READY
    assert [line.split()[0] for line in pod.lines] == ["0s", "30s", "1m00s", "1m30s", "1m40s"]


def test_a_refusal_ends_it_with_the_reason(tmp_path):
    refused = replace(WAITING, state=VolumeState.REFUSED, message="only those of the own namespace")
    pod = PlayedPod(tmp_path, WAITING, refused)
    assert pod.wait() == EXIT_REFUSED
    assert "refused: only those of the own namespace" in pod.lines[-1]


def test_a_time_out_says_what_it_waited_for(tmp_path):
    failed = replace(WAITING, state=VolumeState.FAILED, reason=Reason.NEVER_FITS, message="too big")
    pod = PlayedPod(tmp_path, failed)
    assert pod.wait(10) == EXIT_TIMEOUT
    assert pod.lines[-1].split(maxsplit=1)[1] == (
        "given up: search/minilm failed (NeverFits): too big"
    )


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"state": "Ready"}', b'{"state": 7}'])
def test_a_folder_without_a_status_is_no_volume(tmp_path, content):
    if content is not None:
        (tmp_path / "status.json").write_bytes(content)
    pod = PlayedPod(tmp_path, None)
    assert pod.wait() == EXIT_NO_VOLUME
    assert "no volume of csi.modelcache.io" in pod.lines[0]


def test_hostile_words_stay_on_their_line(tmp_path):
    pod = PlayedPod(tmp_path, replace(WAITING, message="a\nb\x1b[2J"), "ready")
    pod.wait()
    assert all(line.isprintable() for line in pod.lines)


@pytest.mark.parametrize("state", list(VolumeState))
def test_every_state_has_words(state):
    assert describe_progress(replace(LOADING, state=state))


def run(*arguments, **environment) -> subprocess.CompletedProcess:
    code = "import sys; from modelcache_agent.entry import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "wait", *arguments]
    env = {"PYTHONPATH": ":".join(sys.path), **environment}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=env)


def test_the_command_reads_flag_before_environment(tmp_path):
    (tmp_path / "status.json").write_bytes(encode_progress(WAITING))
    (tmp_path / "model").mkdir()
    flag = run(f"--volume={tmp_path}", MODELCACHE_AGENT_VOLUME="/nowhere")
    assert (flag.returncode, "is ready" in flag.stdout) == (EXIT_READY, True)
    assert run(MODELCACHE_AGENT_VOLUME=str(tmp_path)).returncode == EXIT_READY
    wrong = run("--timeout=soon")
    assert (wrong.returncode, "--timeout" in wrong.stdout) == (EXIT_NO_VOLUME, True)


def test_it_needs_neither_kubernetes_nor_a_network_to_start():
    code = (
        "import sys, modelcache_agent.entry, modelcache_agent.volume.wait;"
        "print([n for n in ('kubernetes', 'aiohttp', 'grpc', 'pydantic', 'asyncio', 'socket')"
        " if n in sys.modules])"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env
    )
    assert shown.stdout.strip() == "[]"
