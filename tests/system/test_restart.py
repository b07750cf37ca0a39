"""Restarts with the bucket switched off, and outages of the API server: nothing changes."""

from __future__ import annotations

import pytest

from fakes.world import World

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def team(world: World) -> str:
    namespace = world.add_namespace("team")
    world.put_model("m/v1", size_bytes=20_000_000)
    world.apply_version(namespace, "m-v1", "m/v1")
    world.apply_cache(namespace, "m", "m-v1", copies=2)
    world.wait_ready(namespace, "m", copies=2)
    world.wait(lambda: len(world.warm_nodes(namespace, "m-v1")) == 2, "labels on both")
    return namespace


def test_C14_restart_of_all_with_the_bucket_off_changes_no_label_and_reads_no_byte(
    world: World, team: str
) -> None:
    labels = {node: world.labels(node) for node in world.nodes}
    position = world.cluster.audit.position()
    trees = {node: world.trees(node) for node in world.nodes}
    inodes = {node: tree_inodes(world, node) for node in world.nodes}
    before = {node: label_history(world, node) for node in world.nodes}
    world.store.stop()
    try:
        programs = [*world.system.agents.values(), *world.system.operators.values()]
        for program in programs:
            program.kill()
        assert world.ready_of("modelcaches", team, "m")["status"] == "True"
        for program in programs:
            program.start()
        for node, agent in world.system.agents.items():
            world.wait(
                lambda log=agent.log_file: log.read_text().count("labels=1 on the Node") >= 2,
                f"{node} speaking to the API server again",
            )
        assert world.stays(
            lambda: world.ready_of("modelcaches", team, "m").get("status") == "True", 5
        )
    finally:
        world.store.start()
    assert {node: world.labels(node) for node in world.nodes} == labels
    assert_no_node_changed(world, before, position)
    assert {node: world.trees(node) for node in world.nodes} == trees
    assert {node: tree_inodes(world, node) for node in world.nodes} == inodes


def test_C14_outage_of_the_bucket_leaves_a_ready_cache_ready(world: World, team: str) -> None:
    world.store.stop()
    try:
        assert world.stays(
            lambda: world.ready_of("modelcaches", team, "m").get("status") == "True", 5
        )
    finally:
        world.store.start()


def test_api_server_away_then_everything_catches_up(world: World, team: str, local_cluster) -> None:
    """What is deleted during the outage of the operator is seen after it; nothing labelled goes."""
    before = {node: world.labels(node) for node in world.nodes}
    local_cluster.stop("kube-apiserver")
    trees = {node: world.trees(node) for node in world.nodes}
    assert all(trees.values())
    assert world.stays(lambda: all(world.trees(node) for node in world.nodes), 8)
    local_cluster.start("kube-apiserver")
    assert {node: world.labels(node) for node in world.nodes} == before
    for program in [*world.system.agents.values(), *world.system.operators.values()]:
        program.assert_alive()
    world.cluster.kubectl("delete", "modelcache", "m", "-n", team)
    world.wait_gone(*world.nodes, seconds=90)


def test_C37_deleted_while_the_operator_was_down(world: World, team: str) -> None:
    world.apply_cache(team, "m", "m-v1", copies=2)
    world.wait_ready(team, "m", copies=2)
    world.wait(lambda: len(world.warm_nodes(team, "m-v1")) == 2, "labels on both")
    operator = world.system.operators["operator-0"]
    operator.stop()
    world.cluster.kubectl("delete", "modelcache", "m", "-n", team)
    assert all(world.labels(node) for node in world.nodes)
    operator.start()
    world.wait_gone(*world.nodes, seconds=90)


def label_history(world: World, node: str) -> list[tuple[str, str]]:
    """Who last changed what he manages on the Node, and when: a label taken and set again shows."""
    found = world.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["managedFields"]
    return sorted((m["manager"], m["time"]) for m in found if m["manager"].startswith("modelcache"))


def assert_no_node_changed(
    world: World, before: dict[str, list[tuple[str, str]]], position: int
) -> None:
    """Applying equal labels again writes nothing: times stay. The operator does not touch Nodes."""
    assert {node: label_history(world, node) for node in world.nodes} == before
    writers = {
        event.user
        for event in world.cluster.audit.events(position)
        if event.resource == "nodes" and event.verb in {"patch", "update"} and not event.subresource
    }
    assert not any("modelcache-operator" in writer for writer in writers)


def tree_inodes(world: World, node: str) -> dict[str, int]:
    root = world.system.store_of(node) / "versions"
    return {str(p.relative_to(root)): p.stat().st_ino for p in root.rglob("*") if p.is_file()}
