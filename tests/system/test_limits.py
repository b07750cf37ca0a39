"""Limits of the fleet with real agents: readers and bytes are counted where the store is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fakes.fault_proxy import Fault, FaultProxy
from fakes.world import World
from modelcache_testbed.models import make_model
from modelcache_testbed.system import System

pytestmark = pytest.mark.cluster

AGENTS = 6
MIB = 1 << 20
MODEL_BYTES = 6_000_000


class Limits:
    """The file that the operator reads again when it changes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.write({})

    def write(self, limits: dict) -> None:
        self.file.write_text(yaml.safe_dump({"renewInterval": "1s", **limits}))


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Limits:
    return Limits(tmp_path_factory.mktemp("limits") / "limits.yaml")


@pytest.fixture(scope="module")
def world(cluster, seaweed, tmp_path_factory, limits: Limits) -> Iterator[World]:
    """Agents that do not read from each other, by one connection each."""
    system = System(cluster, tmp_path_factory.mktemp("limits-system"))
    system.install()
    system.add_operator(extra=("--lease-list-interval=1s", f"--limits={limits.file}"))
    world = World(cluster, seaweed, system, "limits")
    try:
        for number in range(1, AGENTS + 1):
            node = world.add_node(f"n{number}", agent=False)
            system.add_agent(node, capacity="1Gi", extra=("--peers=false", "--streams=1"))
        yield world
    finally:
        world.close()


@pytest.fixture(scope="module")
def team(world: World) -> str:
    return world.add_namespace("team")


@pytest.fixture
def store(world: World) -> Iterator[FaultProxy]:
    host, _, port = world.store.endpoint.removeprefix("http://").partition(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


def find_weights(counts: dict[str, int]) -> int:
    return next(count for path, count in counts.items() if path.endswith("model.safetensors"))


def test_no_more_nodes_read_a_source_than_its_limit_allows_and_all_get_their_turn(
    world: World, team: str, store: FaultProxy, limits: Limits
) -> None:
    source = {"prefix": f"s3://{world.bucket.name}/", "maxNodes": 2}
    limits.write({"sources": [source]})
    expected = world.put_model("few", size_bytes=MODEL_BYTES, seed=70)
    store.script("model.safetensors", Fault(trickle=(1_000_000, 0.1)))
    world.apply_version(team, "few", "few", endpoint=store.endpoint)
    world.apply_cache(team, "few", "few", copies=AGENTS)
    uid = world.version(team, "few")["metadata"]["uid"]

    def told() -> list[str]:
        entries = [world.entries(node).get(uid, {}) for node in world.nodes]
        return [entry["message"] for entry in entries if entry.get("reason") == "Queued"]

    world.wait(lambda: any("nodes read s3://" in message for message in told()), "who is ahead")
    world.wait_ready(team, "few", copies=AGENTS, seconds=120)
    assert [list(world.trees(node).values()) for node in world.nodes] == [[expected]] * AGENTS
    assert find_weights(store.most_at_once) <= 2
    size = len(make_model(MODEL_BYTES, 70)["model.safetensors"])
    assert find_weights(store.body_bytes) == AGENTS * size, "nobody began twice"


def test_the_bytes_of_all_nodes_of_a_namespace_stay_within_its_rate(
    world: World, team: str, store: FaultProxy, limits: Limits
) -> None:
    """Every byte was read when all copies are verified, so a slow machine only makes it true."""
    rate = 4 * MIB
    limits.write({"namespaces": {team: {"maxBandwidth": "4Mi"}}})
    world.put_model("slow", size_bytes=MODEL_BYTES, seed=71)
    world.apply_version(team, "slow", "slow", endpoint=store.endpoint)
    began = time.monotonic()
    world.apply_cache(team, "slow", "slow", copies=AGENTS)
    world.wait_ready(team, "slow", copies=AGENTS, seconds=120)
    elapsed = time.monotonic() - began
    served = sum(count for path, count in store.body_bytes.items() if "list-type" not in path)
    assert served >= AGENTS * sum(map(len, make_model(MODEL_BYTES, 71).values()))
    assert served <= rate * elapsed + MIB


def test_with_peers_one_node_reads_under_the_limit_and_the_others_from_it(
    world: World, team: str, store: FaultProxy, limits: Limits
) -> None:
    peers = [world.add_node(f"p{n}", agent=False, labels={"world": "peers"}) for n in range(3)]
    for node in peers:
        world.system.add_agent(node, capacity="1Gi", extra=("--streams=1",))
    limits.write({"sources": [{"prefix": "s3://", "maxNodes": 1, "maxBandwidth": "8Mi"}]})
    world.put_model("shared", size_bytes=MODEL_BYTES, seed=72)
    world.apply_version(team, "shared", "shared", endpoint=store.endpoint)
    world.apply_cache(team, "shared", "shared", copies=3, nodeSelector={"world": "peers"})
    world.wait_ready(team, "shared", copies=3, seconds=120)
    assert find_weights(store.most_at_once) == 1
    size = len(make_model(MODEL_BYTES, 72)["model.safetensors"])
    assert find_weights(store.body_bytes) == size, "one copy from the store"
