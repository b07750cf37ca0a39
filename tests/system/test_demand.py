"""Pods by the label alone, with real agents: injected, scheduled, and brought their model."""

from __future__ import annotations

import pytest

from fakes.world import World

pytestmark = pytest.mark.cluster

GIVEN = {"name": "app", "image": "app"}


def run_pod(world: World, namespace: str, name: str, **spec) -> str:
    """A pod with only the label, kept to this world's nodes; the node that was chosen."""
    selector = {"world": world.name, **spec.pop("nodeSelector", {})}
    labels = {"modelcache.io/cache": "m", **spec.pop("labels", {})}
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [GIVEN], "nodeSelector": selector, **spec},
    }
    world.cluster.api.create(path, pod)
    world.wait(lambda: "nodeName" in world.cluster.api.get(f"{path}/{name}")["spec"], name)
    return str(world.cluster.api.get(f"{path}/{name}")["spec"]["nodeName"])


def end_pod(world: World, namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    world.cluster.api.delete(path, {"gracePeriodSeconds": 0})


def test_C30_the_label_brings_pods_to_the_model_and_the_model_to_pods(world: World) -> None:
    team = world.add_namespace("readers")
    digests = world.put_model("m")
    world.apply_version(team, "m", "m")
    world.apply_cache(team, "m", "m", copies=1)
    world.wait_ready(team, "m", copies=1)
    world.wait(lambda: len(world.warm_nodes(team, "m")) == 1, "one label")
    (warm,) = world.warm_nodes(team, "m")
    (cold,) = set(world.nodes) - {warm}

    assert run_pod(world, team, "soft") == warm
    wish = {"modelcache.io/placement": "required"}
    assert run_pod(world, team, "strict", labels=wish) == warm
    stored = world.cluster.api.get(f"/api/v1/namespaces/{team}/pods/soft")
    volumes = {volume["name"]: volume for volume in stored["spec"]["volumes"]}
    assert volumes["modelcache"]["csi"]["driver"] == "csi.modelcache.io"

    there = {"kubernetes.io/hostname": cold}
    assert run_pod(world, team, "far", nodeSelector=there) == cold
    world.wait(lambda: world.warm_nodes(team, "m") == {warm, cold}, "the model on the cold node")
    assert digests in world.trees(cold).values()
    world.wait(
        lambda: world.cache(team, "m")["status"]["copies"]["demanded"] == 1, "one demand told"
    )
    # The pods that run are left alone, whatever becomes of labels.
    end_pod(world, team, "far")
    world.wait_gone(cold)
    assert world.warm_nodes(team, "m") == {warm}
    assert world.cluster.api.find(f"/api/v1/namespaces/{team}/pods/soft") is not None
