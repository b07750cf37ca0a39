"""Nodes read from each other: what a cold start costs the store, and who is believed."""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.fault_proxy import Fault, FaultProxy
from fakes.lying_node import lying_node
from fakes.world import World
from modelcache_testbed.folders import state_folder
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.models import make_model
from modelcache_testbed.ports import PortLedger
from modelcache_testbed.system import AGENT_ACCOUNT, NAMESPACE

pytestmark = pytest.mark.cluster

AGENTS = 6
MODEL_BYTES = 60_000_000
SENT = "modelcache_agent_peer_sent_bytes_total"


@pytest.fixture(scope="module")
def team(world: World) -> str:
    for number in range(3, AGENTS + 1):
        world.add_node(f"n{number}")
    return world.add_namespace("team")


@pytest.fixture
def store(world: World) -> Iterator[FaultProxy]:
    host, _, port = world.store.endpoint.removeprefix("http://").partition(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


def model_bytes_served(store: FaultProxy) -> int:
    return sum(count for path, count in store.body_bytes.items() if "list-type" not in path)


def test_a_cold_start_of_six_nodes_reads_little_more_than_one_copy_from_the_store(
    world: World, team: str, store: FaultProxy
) -> None:
    expected = world.put_model("cold", size_bytes=MODEL_BYTES, seed=60)
    world.apply_version(team, "cold", "cold", endpoint=store.endpoint)
    world.apply_cache(team, "cold", "cold", copies=AGENTS)
    world.wait_ready(team, "cold", copies=AGENTS, seconds=120)
    assert [list(world.trees(node).values()) for node in world.nodes] == [[expected]] * AGENTS
    assert model_bytes_served(store) <= 1.3 * MODEL_BYTES


def test_killed_and_restarted_agents_cost_at_most_a_second_copy_and_no_wrong_byte(
    world: World, team: str, store: FaultProxy
) -> None:
    """The node that reads the source is among them: it is killed as soon as it has begun."""
    expected = world.put_model("killed", size_bytes=MODEL_BYTES, seed=61)
    store.script("model.safetensors", Fault(trickle=(256 * 1024, 0.03)))
    world.apply_version(team, "killed", "killed", endpoint=store.endpoint)
    world.apply_cache(team, "killed", "killed", copies=AGENTS)
    world.wait(lambda: model_bytes_served(store) > MODEL_BYTES // 3, "a third of the source read")
    uid = world.version(team, "killed")["metadata"]["uid"]
    reader = find_reader(world, uid)
    restart(world, reader)
    world.wait(lambda: bool(held_by(world, uid)), "the first copy", seconds=120)
    for node in random.Random(1).sample([n for n in world.nodes if n != reader], 2):
        restart(world, node)
    world.wait_ready(team, "killed", copies=AGENTS, seconds=120)
    for node in world.nodes:
        assert expected in world.trees(node).values()
    assert model_bytes_served(store) <= 2 * MODEL_BYTES


def test_if_the_reader_dies_another_node_reads_and_the_dead_one_follows_when_it_is_back(
    world: World, team: str, store: FaultProxy
) -> None:
    expected = world.put_model("dead", size_bytes=MODEL_BYTES, seed=63)
    store.script("model.safetensors", Fault(trickle=(256 * 1024, 0.03)))
    world.apply_version(team, "dead", "dead", endpoint=store.endpoint)
    world.apply_cache(team, "dead", "dead", copies=AGENTS)
    world.wait(lambda: model_bytes_served(store) > MODEL_BYTES // 3, "a third of the source read")
    uid = world.version(team, "dead")["metadata"]["uid"]
    reader = find_reader(world, uid)
    world.system.agents[reader].kill()
    others = {node for node in world.nodes if node != reader}
    world.wait(lambda: set(held_by(world, uid)) >= others, "copies on all others", seconds=90)
    world.system.agents[reader].start()
    world.wait_ready(team, "dead", copies=AGENTS, seconds=60)
    for node in world.nodes:
        assert expected in world.trees(node).values()
    assert model_bytes_served(store) <= 2 * MODEL_BYTES


def find_reader(world: World, uid: str) -> str:
    def states() -> dict[str, str]:
        return {n: world.entries(n).get(uid, {}).get("state", "") for n in world.nodes}

    world.wait(lambda: "Downloading" in states().values(), "a node that reads")
    return next(node for node, state in states().items() if state == "Downloading")


def held_by(world: World, uid: str) -> list[str]:
    return [n for n in world.nodes if world.entries(n).get(uid, {}).get("state") == "Cached"]


def restart(world: World, node: str) -> None:
    world.system.agents[node].kill()
    world.system.agents[node].start()


def test_a_lying_node_is_found_excluded_and_reported_and_no_wrong_byte_becomes_ready(
    world: World, team: str, store: FaultProxy, tmp_path: Path
) -> None:
    """A node that held the version is taken over: its certificate is good, its bytes are not."""
    liar = world.add_node("liar", labels={"liar": "yes", "world": "liars"})
    expected = world.put_model("lied", size_bytes=MODEL_BYTES, seed=62)
    world.apply_version(team, "lied", "lied", endpoint=store.endpoint)
    world.apply_cache(team, "first", "lied", copies=1, nodeSelector={"liar": "yes"})
    world.wait_ready(team, "first", copies=1)
    system = world.system
    system.agents[liar].kill()
    credentials = system.cluster.agent_credentials(liar, NAMESPACE, AGENT_ACCOUNT, tmp_path)
    with lying_node(
        tmp_path,
        f"https://127.0.0.1:{system.grants_port}",
        system.authority_file,
        credentials.grant_token_file,
        {path: len(body) for path, body in make_model(MODEL_BYTES, seed=62).items()},
    ) as (port, shelf):
        patch = json.dumps({"status": {"peer": {"address": "127.0.0.1", "port": port}}})
        world.cluster.kubectl(
            "patch", "cachenode", liar, "--subresource=status", "--type=merge", f"--patch={patch}"
        )
        store.reset_counts()
        world.apply_cache(team, "all", "lied", copies=AGENTS)
        world.wait_ready(team, "all", copies=AGENTS, seconds=120)
        asked = shelf.asked
    assert asked > 0, "the lie was told"
    uid = world.cluster.api.get(f"/api/v1/nodes/{liar}")["metadata"]["uid"]
    others = [node for node in world.nodes if node != liar]
    for node in others:
        assert expected in world.trees(node).values()

    def suspected() -> list[list[str]]:
        return [world.cache_node(node)["status"]["peer"]["suspects"] for node in others]

    world.wait(lambda: [uid] in suspected(), "a report of the liar")
    assert all(names in ([], [uid]) for names in suspected()), "nobody else is accused"
    assert model_bytes_served(store) <= 1.3 * MODEL_BYTES
    world.wait(lambda: find_suspected(world) == {liar}, "an Event about the liar and no other")
    conditions = world.cache_node(liar)["status"]["conditions"]
    assert find_condition({"conditions": conditions}, "PeerSuspected")["status"] == "True"


def find_suspected(world: World) -> set[str]:
    """Of which of our CacheNodes an Event says that it served wrong bytes."""
    events = world.cluster.api.get("/apis/events.k8s.io/v1/events")["items"]
    about = (e["regarding"] for e in events if e["reason"] == "PeerSuspected")
    return {a["name"] for a in about if a["kind"] == "CacheNode" and a["name"] in world.nodes}


@dataclass
class Zoned:
    """A node of a zone, and the metrics of its agent."""

    node: str
    metrics_port: int

    def sent(self) -> float:
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        values = (line.removeprefix(f"{SENT} ") for line in lines if line.startswith(f"{SENT} "))
        return float(next(values))


def add_zoned(world: World, name: str, zone: str, **labels: str) -> Zoned:
    ledger = PortLedger(state_folder() / "ports.json")
    port = ledger.reserve(["metrics"], world.system.folder)["metrics"]
    labels |= {"topology.kubernetes.io/zone": zone, "world": "zones"}
    node = world.add_node(name, agent=False, labels=labels)
    world.system.add_agent(node, extra=(f"--metrics-port={port}",))
    return Zoned(node, port)


def test_a_node_reads_from_the_holder_in_its_own_zone_and_not_from_the_one_elsewhere(
    world: World, team: str, store: FaultProxy
) -> None:
    here, there = (add_zoned(world, f"held-{zone}", zone, part="holder") for zone in "ab")
    expected = world.put_model("zoned", size_bytes=MODEL_BYTES, seed=64)
    world.apply_version(team, "zoned", "zoned", endpoint=store.endpoint)
    world.apply_cache(team, "held", "zoned", copies=2, nodeSelector={"part": "holder"})
    world.wait_ready(team, "held", copies=2)
    before = here.sent(), there.sent()
    reader = add_zoned(world, "reads-a", "a", part="reader")
    store.reset_counts()
    world.apply_cache(team, "read", "zoned", copies=1, nodeSelector={"part": "reader"})
    world.wait_ready(team, "read", copies=1)
    assert expected in world.trees(reader.node).values()
    assert here.sent() - before[0] >= 0.9 * MODEL_BYTES
    assert there.sent() - before[1] <= 0.1 * MODEL_BYTES
    assert model_bytes_served(store) == 0
