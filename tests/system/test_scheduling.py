"""The real scheduler and the labels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from fakes.world import PREFIX, World
from modelcache_testbed.demo.scene import build_pod

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def team(world: World) -> str:
    world.add_node("n3")
    return world.add_namespace("team")


def affinity(world: World, namespace: str, *flags: str) -> dict:
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "modelcache_cli",
            "affinity",
            "m",
            "-n",
            namespace,
            *flags,
            "-ojson",
        ],
        env=os.environ | {"KUBECONFIG": str(world.cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def run_pod(world: World, namespace: str, name: str, node_affinity: dict) -> str:
    """The pod, kept to this world's nodes, and the node that the scheduler chose."""
    pod = build_pod(name, node_affinity)
    pod["spec"]["nodeSelector"] = {"world": world.name}
    path = f"/api/v1/namespaces/{namespace}/pods"
    world.cluster.api.create(path, pod)
    world.wait(lambda: "nodeName" in world.cluster.api.get(f"{path}/{name}")["spec"], name)
    return str(world.cluster.api.get(f"{path}/{name}")["spec"]["nodeName"])


def test_C30_cold_then_warm_then_gone(world: World, team: str) -> None:
    world.put_model("m")
    world.apply_version(team, "m", "m")
    world.apply_cache(team, "m", "m", copies=1)
    world.wait_ready(team, "m", copies=1)
    world.wait(lambda: len(world.warm_nodes(team, "m")) == 1, "one label")
    (warm,) = world.warm_nodes(team, "m")
    preferred, required = affinity(world, team), affinity(world, team, "--required")
    assert {run_pod(world, team, f"warm-{i}", preferred) for i in range(5)} == {warm}
    assert run_pod(world, team, "strict", required) == warm

    world.cluster.kubectl("delete", "modelcache", "m", "-n", team)
    world.wait_gone(warm)
    # (a) the default schedules at once somewhere; (b) the strict one waits and says why.
    assert run_pod(world, team, "cold", preferred) in world.nodes
    pod = build_pod("cold-strict", required)
    path = f"/api/v1/namespaces/{team}/pods"
    world.cluster.api.create(path, pod)
    world.wait(
        lambda: any(
            condition.get("reason") == "Unschedulable"
            for condition in world.cluster.api.get(f"{path}/cold-strict")["status"].get(
                "conditions", []
            )
        ),
        "the strict pod being unschedulable",
    )
    events = world.cluster.api.get(f"/api/v1/namespaces/{team}/events")["items"]
    told = [e["message"] for e in events if e["involvedObject"]["name"] == "cold-strict"]
    assert any("node affinity" in message for message in told), told
    # The running pod is left alone, and the strict one goes where the label comes back.
    assert world.cluster.api.find(f"{path}/strict") is not None
    world.apply_cache(team, "m", "m", copies=1)
    world.wait(lambda: "nodeName" in world.cluster.api.get(f"{path}/cold-strict")["spec"], "it")
    chosen = world.cluster.api.get(f"{path}/cold-strict")["spec"]["nodeName"]
    assert {chosen} == world.warm_nodes(team, "m")


def test_C35_many_writers_on_one_node_lose_nothing(world: World, team: str) -> None:
    node = world.nodes[0]
    stop = threading.Event()
    errors: list[Exception] = []
    began = world.cluster.audit.position()

    def write(number: int) -> None:
        count = 0
        while not stop.wait(0.05):
            count += 1
            body = {"metadata": {"labels": {f"other.example/{number}": str(count)}}}
            try:
                world.cluster.api.patch(f"/api/v1/nodes/{node}", body)
            except Exception as error:  # noqa: BLE001 - told below
                errors.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    try:
        names = [f"w{number:02}" for number in range(30)]
        for seed, name in enumerate(names):
            world.put_model(name, size_bytes=20_000, seed=seed)
            world.apply_version(team, name, name)
            world.apply_cache(team, name, name, copies="All")
        for name in names:
            world.wait_ready(team, name, copies=3)
        keys = {world.label_key(team, name) for name in names}
        world.wait(lambda: keys <= set(world.labels(node)), "all labels on the node")
        for name in names[:15]:
            world.cluster.kubectl("delete", "modelcache", name, "-n", team)
        gone = {world.label_key(team, name) for name in names[:15]}
        world.wait(lambda: not gone & set(world.labels(node)), "half of the labels gone")
        assert keys - gone <= set(world.labels(node))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert errors == []
    world.system.agents[node].assert_alive()
    labels = world.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
    assert {f"other.example/{number}" for number in range(4)} <= set(labels)
    assert labels["world"] == world.name
    changes = len(names) + len(gone)
    assert 0 < len(node_writes(world, node, began)) <= changes
    position = world.cluster.audit.position()
    assert world.stays(lambda: keys - gone <= set(world.labels(node)), 5)
    assert node_writes(world, node, position) == []
    assert all(key.startswith(PREFIX) for key in keys)


def node_writes(world: World, node: str, since: int) -> list[str]:
    """Requests of ours that write this Node."""
    return [
        event.uri
        for event in world.cluster.audit.events(since)
        if event.resource == "nodes"
        and event.name == node
        and event.verb == "patch"
        and "modelcache-agent" in event.user
    ]


def test_C30_a_warm_node_that_is_not_ready_attracts_nobody(world: World, team: str) -> None:
    (warm,) = world.warm_nodes(team, "m")
    preferred = affinity(world, team)
    world.cluster.lose_node(warm)
    try:
        world.wait(
            lambda: any(
                taint["key"].startswith("node.kubernetes.io/")
                for taint in world.cluster.api.get(f"/api/v1/nodes/{warm}")["spec"].get(
                    "taints", []
                )
            ),
            "the taint of a lost node",
        )
        chosen = run_pod(world, team, "while-lost", preferred)
        assert chosen in set(world.nodes) - {warm}
    finally:
        world.cluster.recover_node(warm)
