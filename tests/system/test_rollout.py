"""From one version to the next and back, with real agents: what is read, held and dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods, PodVolume
from fakes.world import API, World
from modelcache_testbed.bucket import hash_tree
from modelcache_testbed.kube_api import find_condition

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def team(world: World) -> str:
    namespace = world.add_namespace("team")
    for number in (1, 2):
        world.put_model(f"m/v{number}", seed=number)
        world.apply_version(namespace, f"m-v{number}", f"m/v{number}")
    world.apply_cache(namespace, "m", "m-v1", copies=2)
    world.wait_ready(namespace, "m", copies=2)
    return namespace


def wish(world: World, team: str, **spec: Any) -> None:
    """Change the spec as a user does."""
    world.cluster.api.patch(f"{API}/namespaces/{team}/modelcaches/m", {"spec": spec})


def status(world: World, team: str) -> dict[str, Any]:
    return world.cache(team, "m").get("status", {})


def wait_weight(world: World, team: str, weight: int) -> None:
    """In the status, and in what the agents of both nodes are told."""

    def is_there() -> bool:
        told = [(world.cache_node(node) or {})["spec"]["caches"][0] for node in world.nodes]
        seen = {ref.get("canaryWeight") for ref in told}
        return status(world, team).get("traffic", {}).get("canary") == weight and seen == {weight}

    world.wait(is_there, f"a weight of {weight}", 60)


def held_on(world: World, team: str, name: str) -> set[str]:
    """The nodes with the version's bytes, whether they are labelled or not."""
    uid = world.version(team, name)["metadata"]["uid"]
    return {
        node
        for node in world.nodes
        if world.entries(node).get(uid, {}).get("state") == "Cached" and len(world.trees(node))
    }


def add_volume_of_canary(world: World, team: str, folder: Path) -> PodVolume:
    """A pod's volume on the first node, by the driver's code without its mount."""
    pods = PlayedPods(world.system.store_of(world.nodes[0]), folder / "kubelet")
    track = {"modelcache.io/track": "canary"}
    volume = pods.add(Pod(namespace=team, cache="m", attributes=track))
    world.wait(lambda: volume.is_ready, "the canary's pod")
    return volume


def canary_pods(world: World, team: str) -> list[str]:
    """The versions that pods of the canary show, as the agent of the first node tells."""
    names = {world.version(team, n)["metadata"]["uid"]: n for n in ("m-v1", "m-v2")}
    told = (world.cache_node(world.nodes[0]) or {}).get("status", {}).get("canaryPods", ())
    assert {row["uid"] for row in told} <= {Pod().uid}
    return [names[row["version"]] for row in told]


def test_C45_canary_steps_rollback_promotion_and_the_end_of_the_hold(
    world: World, team: str, tmp_path: Path
) -> None:
    """Going up, back and over reads nothing once both versions are there; leaders are killed."""
    both = set(world.nodes)
    rollout = {"holdFor": "10m", "interval": "10s"}
    wish(world, team, canary={"modelVersion": "m-v2", "weight": 5}, rollout=rollout)
    wait_weight(world, team, 5)
    resident = find_condition(status(world, team), "CanaryResident")
    assert (resident["status"], resident["reason"]) == ("True", "CanaryResident")
    row = world.cluster.kubectl("get", "modelcache", "m", "-n", team).splitlines()[1].split()
    assert row[1:5] == ["m-v1", "m-v2", "95/5", "2/2"]
    world.wait(lambda: world.warm_nodes(team, "m-v2") == both, "labels of both versions")
    assert world.warm_nodes(team, "m-v1") == both
    trees = {node: world.trees(node) for node in world.nodes}
    assert {len(found) for found in trees.values()} == {2}
    beside = add_volume_of_canary(world, team, tmp_path).folder.version("m-v1")
    world.wait(lambda: canary_pods(world, team) == ["m-v2"], "the agent's word for the pod")
    world.wait(beside.is_dir, "stable beside the canary in one volume")
    assert hash_tree(beside) in trees[world.nodes[0]].values()

    operator = world.system.operators["operator-0"]
    world.store.stop()
    try:
        wish(world, team, canary={"weight": 25})
        operator.kill()
        operator.start()
        wait_weight(world, team, 25)
        wish(world, team, canary=None)
        world.wait(lambda: "traffic" not in status(world, team), "the old split")
        operator.kill()
        operator.start()
        world.wait(lambda: not world.warm_nodes(team, "m-v2"), "no label of what left the spec")
        assert held_on(world, team, "m-v2") == both
        assert world.warm_nodes(team, "m-v1") == both
        wish(world, team, stable={"modelVersion": "m-v2"})
        world.wait(lambda: world.warm_nodes(team, "m-v2") == both, "the promoted version")
        world.wait_ready(team, "m", copies=2)
        assert held_on(world, team, "m-v1") == both
        wish(world, team, stable={"modelVersion": "m-v1"})
        world.wait(lambda: world.warm_nodes(team, "m-v1") == both, "the old version again")
        wish(world, team, stable={"modelVersion": "m-v2"}, rollout={"holdFor": "10s"})
        world.wait_ready(team, "m", copies=2)
        assert {node: world.trees(node) for node in world.nodes} == trees
        assert beside.is_dir(), "what is held is shown, for going back"
    finally:
        world.store.start()

    world.wait(lambda: not status(world, team).get("held"), "the end of the hold", 90)
    world.wait(
        lambda: {len(world.trees(node)) for node in world.nodes} == {1}, "V1 off the disks", 60
    )
    assert world.warm_nodes(team, "m-v2") == both
    assert not beside.parent.exists(), "the end of the hold takes it out of the volume, too"
    told = world.cluster.kubectl("get", "events", "-n", team, "-o", "jsonpath={.items[*].reason}")
    assert {"WeightReached", "Held", "HoldEnded"} <= set(told.split())
