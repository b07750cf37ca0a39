"""A hundred kills at random moments: never a claim over wrong bytes, little read twice."""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from fakes.fault_proxy import Fault, FaultProxy
from fakes.world import World
from modelcache_api.manifest import PIECE_BYTES
from modelcache_kube import MODEL_CACHES, NODES, Change, ConnectConfig, connect
from modelcache_testbed.models import make_model
from modelcache_testbed.system import System

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

KILLS = 100
CLAIMS = (Change.ADDED, Change.MODIFIED)
# Many more pieces than streams, so that losing finished ones would break the bound on bytes.
SIZE_BYTES = 200_000_000
STREAMS = 2
SEED = 20261129


@pytest.fixture(scope="module")
def proxy(seaweed) -> Iterator[FaultProxy]:
    parts = urlsplit(seaweed.endpoint)
    with FaultProxy((parts.hostname, parts.port), max_requests=200_000) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def world(cluster, seaweed, tmp_path_factory) -> Iterator[World]:
    system = System(cluster, tmp_path_factory.mktemp("kills"))
    system.install()
    system.add_operator(extra=("--lease-list-interval=1s",))
    world = World(cluster, seaweed, system, "kills")
    try:
        for suffix in ("n1", "n2"):
            node = world.add_node(suffix, agent=False)
            system.add_agent(node, capacity="1Gi", extra=(f"--streams={STREAMS}",))
        yield world
    finally:
        world.close()


@dataclass
class Witness:
    """Watches every event of Nodes and ModelCaches and looks at the bytes behind each claim."""

    world: World
    namespace: str
    expected: dict[str, str]
    events: int = 0
    claims: int = 0
    violations: list[str] = field(default_factory=list)

    async def watch(self) -> None:
        config = ConnectConfig(kubeconfig=self.world.cluster.kubeconfig)
        async with connect(config) as kube:
            await asyncio.gather(self._watch_nodes(kube), self._watch_caches(kube))

    async def _watch_nodes(self, kube) -> None:
        async for event in kube.watch(NODES):
            if event.type not in CLAIMS or event.object["metadata"]["name"] not in self.world.nodes:
                continue
            node = event.object["metadata"]["name"]
            self.events += 1
            if any(key.startswith("cache.") for key in event.object["metadata"].get("labels", {})):
                self.claims += 1
                await asyncio.to_thread(self.check_label, node)

    async def _watch_caches(self, kube) -> None:
        async for event in kube.watch(MODEL_CACHES, self.namespace):
            if event.type not in CLAIMS:
                continue
            self.events += 1
            conditions = event.object.get("status", {}).get("conditions", [])
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                self.claims += 1
                await asyncio.to_thread(self.check_ready)

    def check_label(self, node: str) -> None:
        """The label may have gone since the event; then there is nothing to hold against it."""
        for _ in range(2):
            if self.has_right_bytes(node) or not self.world.labels(node):
                return
        self.violations.append(f"{node} is labelled over {self.world.trees(node)}")

    def check_ready(self) -> None:
        for _ in range(2):
            if any(self.has_right_bytes(node) for node in self.world.nodes):
                return
            if self.world.ready_of("modelcaches", self.namespace, "m").get("status") != "True":
                return
        self.violations.append("Ready without a right copy")

    def has_right_bytes(self, node: str) -> bool:
        try:
            trees = self.world.trees(node)
        except FileNotFoundError:  # it is being removed right now
            return False
        return self.expected in trees.values()


class Killer(threading.Thread):
    """Kills one agent after the other at random moments and starts it again."""

    def __init__(self, world: World, kills: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.kills = kills
        self.done = 0
        self.while_fetching = 0
        self.error: Exception | None = None
        self._random = random.Random(seed)

    def run(self) -> None:
        try:
            nodes = list(self.world.nodes)
            while self.done < self.kills:
                time.sleep(self._random.uniform(0.05, 2.2))
                self._kill(self._random.choice(nodes))
        except Exception as error:  # noqa: BLE001 - told by the test
            self.error = error

    def _kill(self, node: str) -> None:
        agent = self.world.system.agents[node]
        agent.kill()
        self.done += 1
        left = self.world.files_left(node)
        self.while_fetching += any(path.startswith("partial/") for path in left)
        agent.start()


async def test_a_hundred_kills_never_show_wrong_bytes(world: World, proxy: FaultProxy) -> None:
    namespace = world.add_namespace("team")
    expected = world.put_model("m", size_bytes=SIZE_BYTES)
    # Slow enough that kills meet fetching, verifying and publishing.
    proxy.script("model.safetensors", Fault(trickle=(2_000_000, 0.05)))
    world.apply_version(namespace, "m", "m", endpoint=proxy.endpoint)
    witness = Witness(world, namespace, expected)
    watching = asyncio.create_task(witness.watch())
    killer = Killer(world, KILLS, SEED)
    killer.start()
    rounds = 0
    while killer.is_alive() or rounds == 0:
        await asyncio.to_thread(one_round, world, namespace)
        rounds += 1
    assert killer.error is None
    world.apply_cache(namespace, "m", "m", copies=2)
    await asyncio.to_thread(world.wait_ready, namespace, "m", copies=2)
    for node in world.nodes:
        assert list(world.trees(node).values()) == [expected]
    watching.cancel()
    await asyncio.to_thread(world.cluster.kubectl, "delete", "modelcache", "m", "-n", namespace)
    await asyncio.to_thread(world.wait_gone, *world.nodes)
    copies = 2 * (rounds + 1)
    model_bytes = sum(len(body) for body in make_model(SIZE_BYTES, 1).values())
    read = sum(count for path, count in proxy.body_bytes.items() if "-models/m/" in path)
    # At most one part for each stream and kill during a fetch is read twice.
    bound = copies * model_bytes + killer.while_fetching * STREAMS * PIECE_BYTES
    print(
        f"{killer.done} kills ({killer.while_fetching} during a fetch), "
        f"{rounds} rounds of fetch and evict, {witness.events} events, "
        f"{witness.claims} claims checked, {read / 1e6:.0f} MB read, "
        f"{copies * model_bytes / 1e6:.0f} MB needed, bound {bound / 1e6:.0f} MB"
    )
    assert killer.done == KILLS
    assert killer.while_fetching > KILLS // 4
    assert witness.claims > rounds
    assert witness.violations == []
    assert model_bytes < read <= bound


def one_round(world: World, namespace: str) -> None:
    """Fetch on both nodes, then delete: under kills, until it is done."""
    world.apply_cache(namespace, "m", "m", copies=2)
    world.wait_ready(namespace, "m", copies=2, seconds=180)
    world.cluster.kubectl("delete", "modelcache", "m", "-n", namespace)
    world.wait_gone(*world.nodes, seconds=120)


def test_agents_did_not_log_a_traceback(world: World) -> None:
    for agent in world.system.agents.values():
        assert not re.search(r"Traceback", agent.log_file.read_text(errors="replace"))
