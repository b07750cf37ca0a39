"""The driver's and the agent's processes, a real API server, real mounts, and a pod's processes."""

from __future__ import annotations

import secrets
import signal
from hashlib import sha256

import pytest

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
