"""`modelcache drain`: who is waited for, until when, and what the pod's processes hear."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import warnings

import pytest

import modelcache
from fakes.socket_bench import open_socket_bench
from modelcache import draining
from modelcache.command.program import main
from modelcache.draining import drain
from modelcache.volume import Volume
from modelcache_agent.decide import socket_rules
from modelcache_api.volume_holders import BadHolderError, Holder, describe_holders, read_holder
from modelcache_api.volume_progress import ShownVersion
from modelcache_testbed.waiting import wait_until

VERSIONS = (
    ShownVersion("m-v1", "v1", "sha256:1", "model", "stable"),
    ShownVersion("m-v2", "v2", "sha256:2", "versions/m-v2", "canary"),
)
ONE, TWO = Holder(1, ("m-v1",)), Holder(1, ("m-v2",))
KEY = "11111111-1111-1111-1111-111111111111/v"


@pytest.fixture
def volume(bench):
    return Volume(bench.add(versions=VERSIONS, canary_weight=5).content)


def attach(bench, volume):
    """A process is attached, and its agent knows it: what it says is not answered at once."""
    known = bench.counters.attached
    attachment = modelcache.attach(root=volume.root, on_miss="raise")
    wait_until(lambda: bench.counters.attached > known, seconds=30, what="the attachment")
    return attachment


class Draining:
    """A drain in a thread, as a preStop hook runs beside the program."""

    def __init__(self, volume, seconds=60.0):
        self.said, self.left = [], None
        self.thread = threading.Thread(target=self._run, args=(volume, seconds))
        self.thread.start()

    def _run(self, volume, seconds):
        self.left = drain(volume, seconds, self.said.append)

    def end(self):
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.left


def test_a_pod_without_attached_processes_is_drained_at_once(volume):
    assert drain(volume, 60, print) == ()


def test_it_waits_until_each_process_has_closed_and_all_of_them_hear_of_it(bench, volume):
    with attach(bench, volume) as first, attach(bench, volume) as second:
        first.version("canary")
        second.version("m-v1")
        wait_until(lambda: bench.sockets.uses()[KEY] == {"v2"}, seconds=30, what="the uses")
        draining = Draining(volume)
        wait_until(lambda: first.is_draining and second.is_draining, seconds=30, what="the word")
        assert first.choose_version("a"), "what is in work is finished"
        me = os.getpid()
        expected = f"waits for process {me} (m-v1), process {me} (m-v2)"
        wait_until(lambda: draining.said[-1:] == [expected], seconds=30, what=expected)
        first.close()
        wait_until(lambda: draining.said[-1].endswith(f"{me} (m-v1)"), seconds=30, what="one left")
        assert draining.thread.is_alive()
        second.close()
        assert draining.end() == ()


def test_a_pod_whose_processes_have_all_connections_of_a_pod_can_be_drained(bench, volume):
    most = socket_rules.MOST_CONNECTIONS_OF_A_POD
    with contextlib.ExitStack() as processes:
        for _ in range(most):
            processes.enter_context(attach(bench, volume))
        draining = Draining(volume)
        wait_until(lambda: draining.said, seconds=30, what="who is waited for")
        wait_until(
            lambda: draining.said[-1].count("process") == most, seconds=30, what="all of them"
        )
    assert draining.end() == ()


def test_a_version_that_is_closed_is_not_used_while_its_process_is_still_attached(bench, volume):
    with attach(bench, volume) as attachment:
        with attachment.version("canary"):
            wait_until(lambda: bench.sockets.uses()[KEY] == {"v2"}, seconds=30, what="the use")
        wait_until(lambda: bench.sockets.uses()[KEY] == set(), seconds=30, what="no use")
        (holder,) = drain(volume, 0.5, print)
        assert describe_holders([holder]) == f"process {os.getpid()} (attached)"


def test_after_the_deadline_those_who_are_left_are_named_and_the_code_is_one(bench, volume, capsys):
    with attach(bench, volume) as attachment:
        attachment.versions()
        wait_until(lambda: bench.sockets.uses()[KEY] == {"v2"}, seconds=30, what="the use")
        assert main(["drain", f"--volume={volume.root}", "--timeout=1s"]) == 1
        wait_until(lambda: not attachment.is_draining, seconds=30, what="the end of it")
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith(f"waits for process {os.getpid()} (m-v1, m-v2)")
    assert "given up: still attached is process" in said[-1]
    assert main(["drain", f"--volume={volume.root}", "--cache=minilm"]) == 0
    assert capsys.readouterr().out.endswith("drained: no process is attached\n")


def test_a_drain_that_is_killed_leaves_the_pod_as_it_was(bench, volume):
    with attach(bench, volume) as attachment:
        command = [sys.executable, "-m", "modelcache.command.program", "drain", "--timeout=60s"]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([*command, f"--volume={volume.root}"], env=env)
        try:
            wait_until(lambda: attachment.is_draining, seconds=30, what="the word")
        finally:
            process.kill()
            process.wait()
        wait_until(lambda: not attachment.is_draining, seconds=30, what="the end of it")


@pytest.mark.parametrize(
    ("changes", "code"), [({"--cache": "other"}, 2), ({"--volume": "/nonexistent"}, 2)]
)
def test_another_model_cache_and_no_volume_at_all_are_errors(volume, changes, code, capsys):
    given = {"--volume": str(volume.root)} | changes
    assert main(["drain", *(f"{name}={value}" for name, value in given.items())]) == code
    assert capsys.readouterr().err.startswith("modelcache drain: ")


def test_without_an_agent_it_asks_until_the_deadline_and_says_that_nobody_answered(
    tmp_path, capsys
):
    with open_socket_bench(tmp_path / "pods") as bench:
        folder = bench.add()
    assert main(["drain", f"--volume={folder.content}", "--timeout=1s"]) == 1
    said = capsys.readouterr().out
    assert said.count("does not answer") == 1
    assert "the node's agent did not say who is attached" in said


def test_who_was_attached_to_an_agent_that_went_is_waited_for_until_it_says_something(tmp_path):
    with open_socket_bench(tmp_path / "pods") as bench:
        volume = Volume(bench.add(versions=VERSIONS).content)
        attachment = attach(bench, volume)
        draining = Draining(volume)
        wait_until(lambda: draining.said, seconds=30, what="who is waited for")
    with open_socket_bench(tmp_path / "pods") as bench, warnings.catch_warnings():
        warnings.simplefilter("ignore", modelcache.FallbackWarning)
        bench.add(versions=VERSIONS)
        wait_until(lambda: bench.counters.connections == 1, seconds=30, what="the drain's return")
        assert draining.thread.is_alive(), "the process has not spoken to the new agent yet"
        wait_until(lambda: attachment.is_draining, seconds=60, what="the process to come back")
        attachment.close()
        assert draining.end() == ()


def test_processes_of_two_containers_with_one_number_are_two(monkeypatch):
    """After the agent was lost, the first that is back does not stand for both."""
    line = iter([[(ONE, TWO)], [(), (ONE,), (ONE, TWO), (TWO,), ()]])
    monkeypatch.setattr(draining, "_listen", lambda *_given: iter(next(line)))
    monkeypatch.setattr(draining, "_RETRY_SECONDS", 0)
    said = []
    assert drain(None, 60, said.append) == ()
    one, two = "process 1 (m-v1)", "process 1 (m-v2)"
    assert said == [f"waits for {one}, {two}", f"waits for {two}"]


def test_an_older_agent_is_an_error_that_says_so(volume, monkeypatch):
    from modelcache_agent.socket import connection
    from modelcache_api import volume_socket

    def parse(body):
        request = volume_socket.parse_request(body)
        raise volume_socket.SocketProtocolError(
            volume_socket.SocketReason.UNKNOWN_MESSAGE, "no such request", request.id
        )

    monkeypatch.setattr(connection, "parse_request", parse)
    with modelcache.attach(root=volume.root, on_miss="raise") as attachment:
        assert attachment.choose_version("a").name == "m-v1"
        assert attachment.fallbacks == 0, "what it does not know costs nothing"
    with pytest.raises(modelcache.DrainUnknownError, match="older"):
        drain(volume, 60, print)


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {"pid": 1},
        {"pid": True, "versions": []},
        {"pid": -1, "versions": []},
        {"pid": 1, "versions": "v1"},
        {"pid": 1, "versions": [1]},
        {"pid": 1, "versions": [""]},
        {"pid": 1, "versions": ["v" * 65]},
        {"pid": 1, "versions": ["v"] * 17},
    ],
)
def test_what_is_no_holder_is_refused(fields):
    with pytest.raises(BadHolderError):
        read_holder(fields)
    assert read_holder({"pid": 1, "versions": ["v"] * 16}) == Holder(1, ("v",) * 16)
