"""The driver's and the agent's processes, a real API server, real mounts, and a pod's processes."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from hashlib import sha256
from math import sqrt
from pathlib import Path

import pytest

from fakes import both_versions
from fakes.fetch_world import random_body, safetensors_body
from fakes.grants_server import GrantsServer
from fakes.mount_room import READER_UID, MountRoom
from fakes.played_agent import PlayedAgent
from fakes.played_kubelet import PlayedKubelet, Pod
from fakes.range_server import RangeServer
from modelcache_testbed.system import System
from modelcache_testbed.waiting import wait_until

pytestmark = pytest.mark.cluster

POD = Pod()
BODIES = {
    "model.safetensors": safetensors_body(20 << 20, seed=1),
    "config.json": b"{}",
    "1_Pooling/config.json": random_body(1000, seed=2),
}


@pytest.fixture
def node(cluster, room, tmp_path):
    System(cluster, tmp_path).install()
    kubelet = PlayedKubelet(room)
    with (
        RangeServer() as objects,
        GrantsServer(lambda uid, path: objects.url(f"{uid}/{path}")) as grants,
    ):
        name = f"played-{secrets.token_hex(3)}"
        agent = PlayedAgent(cluster, name, room.folder, grants, objects)
        agent.prepare()
        try:
            yield agent, kubelet
        finally:
            kubelet.close()
            agent.close()


def wait_in(room: MountRoom, volume):
    return room.start_program("wait", f"--volume={volume}", uid=READER_UID, stdout=-1, text=True)


def test_a_pods_life_through_the_ends_of_agent_and_driver(node, room):
    agent, kubelet = node
    agent.start()
    kubelet.start_driver()
    volume = kubelet.publish(POD)
    wait_until(
        lambda: agent.status().get("demands") == [{"namespace": "search", "name": "minilm"}],
        seconds=30,
        what="the demand",
    )
    waiting = wait_in(room, volume)
    agent.caches["search/minilm"] = "v1"
    version = agent.add("v1", BODIES)
    said = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 0, said
    assert "search/minilm is ready" in said.splitlines()[-1]
    key = agent.adopt("v1")
    agent.await_labels({key})
    assert agent.entry("v1")["mounts"] == 1

    script = f"exec 3< {volume}/model/model.safetensors; echo open; read _; sha256sum <&3"
    reader = room.start("sh", "-c", script, uid=READER_UID, stdin=-1, stdout=-1, text=True)
    assert reader.stdout.readline() == "open\n"
    agent.stop(signal.SIGKILL)
    kubelet.end_driver(signal.SIGKILL)
    agent.caches.clear()
    agent.drop("v1")
    asked = len(agent.objects.requests)
    agent.start()
    agent.await_labels(set())
    tree = agent.store / "versions" / version.content_digest.removeprefix("sha256:")
    assert tree.exists(), "the copy stays while a pod shows it"
    found = reader.communicate("\n", timeout=30)[0].split()[0]
    assert found == sha256(BODIES["model.safetensors"]).hexdigest()
    assert wait_in(room, volume).wait(30) == 0, "a container that restarts finds its model"
    assert len(agent.objects.requests) == asked

    agent.stop()
    kubelet.start_driver()
    kubelet.unpublish(POD)
    assert room.mounts() == [], "unmounting needs no agent"
    agent.start()
    wait_until(lambda: not tree.exists(), seconds=30, what="the copy to go with its last pod")


class Process:
    """`both_versions.py` in the pod, as a user without any rights."""

    def __init__(self, room: MountRoom, volume) -> None:
        script = str(Path(both_versions.__file__))
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = room.start(
            *(sys.executable, script, str(volume)),
            uid=READER_UID,
            env=env,
            stdin=-1,
            stdout=-1,
            text=True,
        )

    def ask(self, command: str) -> dict:
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> dict:
        said = self.process.communicate("end\n", timeout=60)[0]
        assert self.process.returncode == 0
        return json.loads(said.splitlines()[-1])


def is_share(count: int, percent: int, of: int = 20_000) -> bool:
    """Within five standard deviations of what chance gives: one run in a million is wrong."""
    share = percent / 100
    return abs(count - of * share) <= 5 * sqrt(of * share * (1 - share))


def test_C45_a_process_with_both_versions_follows_the_weight_and_fails_no_request(node, room):
    """The second version appears in the mounted volume; threads read while the weight moves."""
    agent, kubelet = node
    agent.start()
    kubelet.start_driver()
    agent.caches["search/minilm"] = "v1"
    agent.add("v1", BODIES)
    agent.await_state("v1", "Cached")
    key = agent.adopt("v1")
    volume = kubelet.publish(POD)
    assert wait_in(room, volume).wait(60) == 0
    process = Process(room, volume)
    said = process.ask("split 20000")
    assert (said["counts"], set(said["loaded"])) == ({"v1": 20_000}, {"v1"})

    agent.add("v2", BODIES | {"model.safetensors": safetensors_body(1 << 20, seed=9)})
    agent.await_state("v2", "Cached")
    keys = {key, agent.adopt("v2")}

    def weigh(weight: int | None) -> None:
        told = {} if weight is None else {"canaryUid": "v2", "canaryWeight": weight}
        agent.parts = told
        agent.write_cache_node()
        expected = {"stable": 100} if weight is None else {"stable": 100 - weight, "canary": weight}
        wait_until(
            lambda: process.ask("load")["weights"] == expected, seconds=30, what="the weight"
        )

    weigh(0)
    agent.await_labels(keys)
    wait_until(lambda: len(process.ask("load")["loaded"]) == 2, seconds=30, what="both versions")
    before = len(agent.objects.requests)
    for weight in (5, 25, 100, 25, 0):
        weigh(weight)
        said = process.ask("split 20000")
        assert is_share(said["counts"].get("v2", 0), weight), said
        assert said["isMonotone"]
    wait_until(lambda: agent.entry("v2").get("mounts") == 1, seconds=30, what="the use of v2")
    agent.stop(signal.SIGKILL)
    assert process.ask("split 1000")["counts"] == {"v1": 1000}
    agent.start()
    weigh(5)
    assert is_share(process.ask("split 20000")["counts"]["v2"], 5)
    assert len(agent.objects.requests) == before, "no weight costs a byte"
    # The process tries again with back-off, and what nobody is known to use leaves at once.
    wait_until(lambda: agent.entry("v2").get("mounts") == 1, seconds=60, what="the use told again")

    agent.parts = {}
    agent.drop("v2")
    agent.await_labels({key})
    wait_until(lambda: list(process.ask("load")["loaded"]) == ["v1"], seconds=30, what="v2's leave")
    listed = ("test", "-e", f"{volume}/versions")
    wait_until(lambda: room.run(*listed).returncode == 1, seconds=60, what="v2's folder to go")
    said = process.end()
    assert (said["errors"], said["misses"]) == ({}, 0), said
    assert said["answered"] > 1000
