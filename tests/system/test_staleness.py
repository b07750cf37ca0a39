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


def test_C06_verified_copies_stay_and_others_come_from_them_alone_and_C21_drop_takes_them(
    world: World,
) -> None:
    team = world.add_namespace("team")
    world.put_model("m/v1")
    world.apply_version(team, "m-v1", "m/v1", recheck_interval="10s")
    world.apply_cache(team, "m", "m-v1", copies=1)
    world.wait_ready(team, "m", copies=1)
    world.wait(lambda: len(world.warm_nodes(team, "m-v1")) == 1, "the label")
    (first,) = world.warm_nodes(team, "m-v1")
    tree = world.trees(first)

    world.bucket.put(WEIGHTS, make_model(3_000_000, 2)["model.safetensors"])
    world.wait(lambda: source_state(world, team) == ("False", "SourceChanged"), "the change")
    # The source has other bytes now: these can only be the first node's.
    world.apply_cache(team, "m", "m-v1", copies=2)
    world.wait_ready(team, "m", copies=2)
    assert all(world.trees(node) == tree for node in world.nodes)
    ready = world.ready_of("modelcaches", team, "m")
    assert (ready["status"], ready["reason"]) == ("True", "Cached")

    world.bucket.delete(WEIGHTS)
    world.wait(lambda: source_state(world, team) == ("False", "SourceGone"), "the end of it")
    assert all(world.trees(node) == tree for node in world.nodes)
    world.apply_version(team, "m-v1", "m/v1", recheck_interval="10s", onSourceGone="Drop")
    world.wait_gone(*world.nodes)
    world.wait(lambda: world.ready_of("modelcaches", team, "m")["reason"] == "SourceGone", "why")
