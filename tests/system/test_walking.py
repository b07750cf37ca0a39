"""The whole path: resolve, place, fetch, verify, label, schedule, restart, delete."""

from __future__ import annotations

import pytest

from fakes.world import PREFIX, World

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def team(world: World) -> str:
    return world.add_namespace("team")


def test_a_model_becomes_ready_with_the_bucket_s_bytes_on_two_nodes(
    world: World, team: str
) -> None:
    expected = world.put_model("walk/v1")
    world.apply_version(team, "walk-v1", "walk/v1")
    world.apply_cache(team, "walk", "walk-v1", copies=2)
    status = world.wait_ready(team, "walk", copies=2)
    assert status["copiesSummary"] == "2/2"
    assert status["progress"] == "100%"
    world.wait(lambda: world.warm_nodes(team, "walk-v1") == set(world.nodes), "labels on both")
    for node in world.nodes:
        assert list(world.trees(node).values()) == [expected]


def test_label_key_is_traceable_through_both_statuses(world: World, team: str) -> None:
    key = world.label_key(team, "walk-v1")
    assert key is not None
    assert key.startswith(PREFIX)
    tracks = world.cache(team, "walk")["status"]["tracks"]
    assert [track["nodeLabelKey"] for track in tracks] == [key]
    assert world.labels(world.nodes[0]) == {key: "disk"}


def test_C33_join_of_namespace_and_name_is_unambiguous(world: World) -> None:
    one, other = world.add_namespace("a-b"), world.add_namespace("a")
    world.put_model("join", seed=33)
    world.apply_version(one, "c", "join")
    world.apply_version(other, "b-c", "join")
    world.apply_cache(one, "c", "c", copies=1)
    world.apply_cache(other, "b-c", "b-c", copies=1)
    world.wait_ready(one, "c", copies=1)
    world.wait_ready(other, "b-c", copies=1)
    world.wait(
        lambda: bool(world.warm_nodes(one, "c")) and bool(world.warm_nodes(other, "b-c")),
        "labels of both",
    )
    assert world.label_key(one, "c") != world.label_key(other, "b-c")
    kept_nodes, kept_key = world.warm_nodes(other, "b-c"), world.label_key(other, "b-c")
    gone_key = world.label_key(one, "c")
    world.cluster.kubectl("delete", "modelcache", "c", "-n", one)
    world.wait(
        lambda: all(gone_key not in world.labels(node) for node in world.nodes), "label of c gone"
    )
    # Equal bytes under another name stay, label and files.
    assert world.stays(lambda: world.warm_nodes(other, "b-c") == kept_nodes, 2)
    for node in kept_nodes:
        assert kept_key in world.labels(node)
        digest = world.version(other, "b-c")["status"]["contentDigest"].removeprefix("sha256:")
        assert digest in world.trees(node)


def test_C34_labels_and_bytes_go_with_the_cache_and_come_back_with_it(
    world: World, team: str
) -> None:
    nodes = world.warm_nodes(team, "walk-v1")
    key = world.label_key(team, "walk-v1")
    world.cluster.kubectl("delete", "modelcache", "walk", "-n", team)
    world.wait(lambda: all(key not in world.labels(node) for node in nodes), "labels gone")
    world.apply_cache(team, "walk", "walk-v1", copies=1)
    world.wait_ready(team, "walk", copies=1)
    world.wait(lambda: len(world.warm_nodes(team, "walk-v1")) == 1, "one label")
    assert world.label_key(team, "walk-v1") == key


def test_more_and_fewer_copies_keep_what_is_there(world: World, team: str) -> None:
    """A copy that stays is not fetched again: its files keep their inodes."""
    (first,) = world.warm_nodes(team, "walk-v1")
    before = inodes(world, first)
    world.apply_cache(team, "walk", "walk-v1", copies=2)
    world.wait_ready(team, "walk", copies=2)
    world.wait(lambda: len(world.warm_nodes(team, "walk-v1")) == 2, "labels on both")
    assert inodes(world, first) == before
    both = {node: inodes(world, node) for node in world.nodes}
    world.apply_cache(team, "walk", "walk-v1", copies=1)
    world.wait(lambda: len(world.warm_nodes(team, "walk-v1")) == 1, "one label again")
    (kept,) = world.warm_nodes(team, "walk-v1")
    assert inodes(world, kept) == both[kept]


def inodes(world: World, node: str) -> set[int]:
    root = world.system.store_of(node) / "versions"
    return {path.stat().st_ino for path in root.rglob("*") if path.is_file()}
