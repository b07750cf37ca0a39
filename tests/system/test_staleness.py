"""Real agents under a version whose source changes, and then vanishes."""

from __future__ import annotations

import pytest

from fakes.world import World
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.models import make_model

pytestmark = pytest.mark.cluster

WEIGHTS = "m/v1/model.safetensors"


def source_state(world: World, team: str) -> tuple[str, str]:
    found = find_condition(world.version(team, "m-v1")["status"], "SourceCurrent")
    return found.get("status", ""), found.get("reason", "")


def reasons(world: World) -> list[str]:
    """What the nodes say of the version, sorted."""
    entries = (entry for node in world.nodes for entry in world.entries(node).values())
    return sorted(entry["reason"] for entry in entries)


def test_C06_verified_copies_stay_and_no_other_can_be_made_and_C21_drop_takes_them(
    world: World,
) -> None:
    team = world.add_namespace("team")
    world.put_model("m/v1")
    world.apply_version(team, "m-v1", "m/v1", recheck_interval="10s")
    world.apply_cache(team, "m", "m-v1", copies=1)
    world.wait_ready(team, "m", copies=1)
    world.wait(lambda: len(world.warm_nodes(team, "m-v1")) == 1, "the label")
    trees = {node: world.trees(node) for node in world.nodes}

    world.bucket.put(WEIGHTS, make_model(3_000_000, 2)["model.safetensors"])
    world.wait(lambda: source_state(world, team) == ("False", "SourceChanged"), "the change")
    world.apply_cache(team, "m", "m-v1", copies=2)
    world.wait(lambda: reasons(world) == ["Cached", "SourceChanged"], "the second copy's refusal")
    assert len(world.warm_nodes(team, "m-v1")) == 1
    assert {node: world.trees(node) for node in world.nodes} == trees
    world.wait(lambda: world.ready_of("modelcaches", team, "m")["reason"] == "Degraded", "the news")
    ready = world.ready_of("modelcaches", team, "m")
    assert ready["status"] == "True"
    assert "SourceChanged" in ready["message"]

    world.bucket.delete(WEIGHTS)
    world.wait(lambda: source_state(world, team) == ("False", "SourceGone"), "the end of it")
    assert {node: world.trees(node) for node in world.nodes} == trees
    world.apply_version(team, "m-v1", "m/v1", recheck_interval="10s", onSourceGone="Drop")
    world.wait_gone(*world.nodes)
    world.wait(lambda: world.ready_of("modelcaches", team, "m")["reason"] == "SourceGone", "why")
