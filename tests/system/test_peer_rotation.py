"""The operator's authority is rotated while agents read from each other all the time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from fakes import hasty_operator
from fakes.fault_proxy import FaultProxy
from fakes.world import World
from modelcache_testbed.system import NAMESPACE, System

pytestmark = pytest.mark.cluster

MODEL_BYTES = 9_000_000
# Certificates live as long, and agents have a third of it to renew them.
OVERLAP = "15s"
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/modelcache-ca"
MOST_ROUNDS = 60
# What an agent logs when another one cannot be read from, or when it is not certified itself.
TROUBLES = ("is left alone", "no certificate", "that cannot be used")


@pytest.fixture(scope="module")
def world(cluster, seaweed, tmp_path_factory) -> Iterator[World]:
    """An operator in a hurry and three agents."""
    system = System(cluster, tmp_path_factory.mktemp("rotation"))
    system.install()
    system.add_operator(
        extra=("--lease-list-interval=1s", f"--authority-overlap={OVERLAP}"),
        python=(hasty_operator.__file__,),
    )
    world = World(cluster, seaweed, system, "rotation")
    try:
        for name in ("n1", "n2", "n3"):
            world.add_node(name)
        yield world
    finally:
        world.close()


@pytest.fixture
def store(world: World) -> Iterator[FaultProxy]:
    host, _, port = world.store.endpoint.removeprefix("http://").partition(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


def show_authorities(world: World) -> tuple[int, ...]:
    """What is trusted now, by serial number; agents are shown it as the kubelet would."""
    bundle = world.cluster.api.get(CONFIG_MAP)["data"]["ca.crt"]
    scratch = world.system.authority_file.with_suffix(".new")
    scratch.write_text(bundle)
    scratch.replace(world.system.authority_file)
    return tuple(found.serial_number for found in x509.load_pem_x509_certificates(bundle.encode()))


def start_cold(world: World, team: str, number: int, store: FaultProxy) -> None:
    name = f"r{number}"
    expected = world.put_model(name, size_bytes=MODEL_BYTES, seed=200 + number)
    world.apply_version(team, name, name, endpoint=store.endpoint)
    world.apply_cache(team, name, name, copies=3)
    world.wait_ready(team, name, copies=3)
    assert all(expected in world.trees(node).values() for node in world.nodes)


def find_troubles(folder: Path) -> set[str]:
    logs = (file.read_text().splitlines() for file in folder.glob("agent-*/agent-*.log"))
    lines = itertools.chain.from_iterable(logs)
    return {line for line in lines if any(word in line for word in TROUBLES)}


def test_a_rotation_under_agents_that_read_from_each_other_costs_no_connection_and_no_byte(
    world, store
):
    team = world.add_namespace("team")
    first = show_authorities(world)
    start_cold(world, team, 0, store)
    # Agents may have been there before their operator listened.
    before = find_troubles(world.system.folder)
    rotate = ("secret", "modelcache-operator-ca", "modelcache.io/rotate=now")
    world.cluster.kubectl("annotate", f"--namespace={NAMESPACE}", *rotate)
    seen, rounds = [first], 1
    while len(seen[-1]) > 1 or seen[-1] == first:
        assert rounds < MOST_ROUNDS, "the rotation has not ended"
        start_cold(world, team, rounds, store)
        rounds += 1
        if (now := show_authorities(world)) != seen[-1]:
            seen.append(now)
    assert set(seen[-1]).isdisjoint(first), "another authority has taken over"
    assert set(first) < set(seen[1]), "both were trusted meanwhile"
    start_cold(world, team, rounds, store)
    assert find_troubles(world.system.folder) == before
    served = sum(n for path, n in store.body_bytes.items() if path.endswith(".safetensors"))
    assert served <= 1.1 * (rounds + 1) * MODEL_BYTES, "the others never needed the store"
