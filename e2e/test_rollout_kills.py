"""A canary at 5 %, at 25 %, taken back and promoted, while everything is killed in between.

Two runs by default; `make rollouts-nightly` makes twenty.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from fakes.fault_proxy import FaultProxy
from fakes.world import API, World
from modelcache_kube import CACHE_NODES, MODEL_CACHES, Change, ConnectConfig, connect
from modelcache_testbed import LocalCluster
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.system import System

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RUNS = int(os.environ.get("MODELCACHE_ROLLOUT_RUNS", "2"))
SEED = 20261130
SIZE_BYTES = 6_000_000
API_SERVER = "kube-apiserver"
# Every step outlives that many kills, at moments that are drawn.
KILLS_PER_STEP = 2
STEP_SECONDS = 240.0
HOLD = "10m"
# What a transfer notes of itself beside its bytes.
NOTES_BYTES = 256 * 1024


@pytest.fixture(scope="module")
def proxy(seaweed) -> Iterator[FaultProxy]:
    parts = urlsplit(seaweed.endpoint)
    with FaultProxy((parts.hostname, parts.port), max_requests=200_000) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def world(seaweed, tmp_path_factory) -> Iterator[World]:
    """On a cluster of its own, whose API server is nobody else's."""
    cluster = LocalCluster.ephemeral()
    system = System(cluster, tmp_path_factory.mktemp("rollout-kills"))
    try:
        cluster.up(ephemeral=True)
        system.install()
        for number in (0, 1):
            system.add_operator(
                f"operator-{number}", extra=("--lease-list-interval=1s",), primary=not number
            )
        world = World(cluster, seaweed, system, "rollkills")
        for suffix in ("n1", "n2"):
            world.add_node(suffix)
        yield world
    finally:
        system.remove()
        cluster.down()


@dataclass
class Run:
    """One ModelCache `m` on its way from m-v1 to m-v2."""

    world: World
    namespace: str
    contents: dict[str, dict[str, str]]

    def wish(self, **spec: Any) -> None:
        """Change the spec as a user does, who tries again while the API server is away."""
        path = f"{API}/namespaces/{self.namespace}/modelcaches/m"
        wait_for(lambda: self.world.cluster.api.patch(path, {"spec": spec}) is not None, "a patch")

    def status(self) -> dict[str, Any]:
        return self.world.cache(self.namespace, "m").get("status", {})

    def holders(self, version: str) -> set[str]:
        """Nodes whose disks have the right bytes, whatever anybody says."""
        return {node for node in self.world.nodes if self.contents[version] in self.trees(node)}

    def trees(self, node: str) -> list[dict[str, str]]:
        try:
            return list(self.world.trees(node).values())
        except FileNotFoundError:  # it is being removed right now
            return []

    def blobs(self) -> dict[str, set[tuple[str, int, int]]]:
        """Name, inode and time of every blob: a byte that is written anew changes one of them."""
        found: dict[str, set[tuple[str, int, int]]] = {}
        for node in self.world.nodes:
            folder = self.world.system.store_of(node) / "blobs"
            files = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
            found[node] = {(path.name, stat.st_ino, stat.st_mtime_ns) for path, stat in files}
        return found

    def bytes_on(self, node: str) -> int:
        """Of whole files and of those under way, each once."""
        store = self.world.system.store_of(node)
        sizes: dict[int, int] = {}
        for folder in ("blobs", "partial", "quarantine", "released"):
            for path in (store / folder).rglob("*"):
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file():
                        sizes[path.stat().st_ino] = path.stat().st_blocks * 512
        return sum(sizes.values())


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Until it holds; an API server that is away only makes it wait."""
    deadline = time.monotonic() + STEP_SECONDS
    while True:
        try:
            if condition():
                return
        except (TestbedError, OSError):
            pass
        if time.monotonic() > deadline:
            raise TestbedError(f"{what}: not within {STEP_SECONDS:g} s")
        time.sleep(0.1)


@dataclass
class Witness:
    """Looks at the disks at every event of ModelCaches and CacheNodes."""

    run: Run
    most_bytes: int
    events: int = 0
    checks: int = 0
    highest_bytes: int = 0
    violations: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def watching(self):
        config = ConnectConfig(kubeconfig=self.run.world.cluster.kubeconfig)
        async with connect(config) as kube:
            watches = [
                asyncio.create_task(self._watch_caches(kube)),
                asyncio.create_task(self._watch_nodes(kube)),
            ]
            yield
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _watch_caches(self, kube) -> None:
        async for event in kube.watch(MODEL_CACHES, self.run.namespace):
            if event.type in {Change.ADDED, Change.MODIFIED}:
                self.events += 1
                await asyncio.to_thread(self._check_traffic, event.object.get("status", {}))

    async def _watch_nodes(self, kube) -> None:
        async for event in kube.watch(CACHE_NODES):
            if event.type in {Change.ADDED, Change.MODIFIED}:
                self.events += 1
                node = event.object["metadata"]["name"]
                await asyncio.to_thread(self._check_room, node)

    def _check_traffic(self, status: dict[str, Any]) -> None:
        """What traffic is sent to lies verified on some disk."""
        traffic = status.get("traffic", {"stable": 100})
        for track in status.get("tracks", ()):
            if not traffic.get(track["name"]) or "contentDigest" not in track:
                continue
            self.checks += 1
            if not self.run.holders(track["modelVersion"]):
                self.violations.append(f"no copy of {track['modelVersion']} at {traffic}")

    def _check_room(self, node: str) -> None:
        found = self.run.bytes_on(node)
        self.highest_bytes = max(self.highest_bytes, found)
        if found > self.most_bytes:
            self.violations.append(f"{found} bytes on {node}, {self.most_bytes} were stated")


class Killer:
    """Kills at moments drawn from a seed, and starts again."""

    def __init__(self, world: World, seed: str) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.killed: dict[str, int] = {}

    async def during(self, step: Callable[[], None]) -> None:
        """The kills begin with the step, which must end after the last of them."""
        for _ in range(KILLS_PER_STEP):
            await asyncio.sleep(self.random.uniform(0.0, 1.2))
            await asyncio.to_thread(self._kill)
        await asyncio.to_thread(step)

    def _kill(self) -> None:
        programs = {**self.world.system.operators, **self.world.system.agents}
        name = kind = self.random.choice([API_SERVER, *sorted(programs)])
        if name == API_SERVER:
            pid = self.world.cluster.status()[API_SERVER]
            os.kill(pid, signal.SIGKILL)
            self.world.cluster.restart(API_SERVER)
        else:
            programs[name].kill()
            programs[name].start()
            kind = "operator" if name in self.world.system.operators else "agent"
        self.killed[kind] = self.killed.get(kind, 0) + 1


def begin(world: World, proxy: FaultProxy, number: int) -> Run:
    """Stable is on both nodes."""
    namespace = world.add_namespace(f"r{number}")
    contents = {}
    for version in (1, 2):
        name = f"m-v{version}"
        prefix = f"r{number}/v{version}"
        contents[name] = world.put_model(prefix, size_bytes=SIZE_BYTES, seed=10 * number + version)
        world.apply_version(namespace, name, prefix, endpoint=proxy.endpoint)
    world.apply_cache(namespace, "m", "m-v1", copies=2)
    world.wait_ready(namespace, "m", copies=2, seconds=STEP_SECONDS)
    return Run(world, namespace, contents)


def end(run: Run) -> None:
    """Nothing stays for the next run."""
    run.world.cluster.kubectl("delete", "modelcache", "m", "-n", run.namespace)
    run.world.wait_gone(*run.world.nodes, seconds=STEP_SECONDS)


@pytest.mark.parametrize("number", range(RUNS))
async def test_c45_a_rollout_survives_kills_between_any_two_steps(
    world: World, proxy: FaultProxy, number: int
) -> None:
    began = time.monotonic()
    run = await asyncio.to_thread(begin, world, proxy, number)
    both = set(world.nodes)
    stable_bytes = run.bytes_on(world.nodes[0])
    # Both models are of one size: as much again is what the canary is stated to take.
    witness, killer = (
        Witness(run, 2 * stable_bytes + NOTES_BYTES),
        Killer(world, f"{SEED}-{number}"),
    )

    def wait_weight(weight: int | None) -> None:
        wait_for(lambda: run.status().get("traffic", {}).get("canary") == weight, f"{weight} %")

    async with witness.watching():
        rollout = {"holdFor": HOLD, "interval": "10s"}
        run.wish(canary={"modelVersion": "m-v2", "weight": 5}, rollout=rollout)
        await killer.during(lambda: wait_weight(5))
        stated = run.status()["rollout"]["extraBytes"]
        assert run.holders("m-v2") == both
        read, before = proxy.total_bytes, run.blobs()
        run.wish(canary={"modelVersion": "m-v2", "weight": 25})
        await killer.during(lambda: wait_weight(25))
        run.wish(canary=None)
        await killer.during(lambda: wait_weight(None))
        wait_for(lambda: not world.warm_nodes(run.namespace, "m-v2"), "no label of the canary")
        assert run.holders("m-v1") == run.holders("m-v2") == both
        run.wish(stable={"modelVersion": "m-v2"})
        await killer.during(
            lambda: wait_for(
                lambda: world.warm_nodes(run.namespace, "m-v2") == both, "the promoted version"
            )
        )
        wait_for(lambda: run.status()["copiesSummary"] == "2/2", "all copies of it")
        assert run.holders("m-v1") == run.holders("m-v2") == both
        assert (proxy.total_bytes - read, run.blobs()) == (0, before)
    await asyncio.to_thread(end, run)
    print(
        f"run {number}: {time.monotonic() - began:.0f} s, kills {killer.killed}, {witness.events} "
        f"events, {witness.checks} looks at what takes traffic, at most {witness.highest_bytes} "
        f"bytes on a node ({stable_bytes} of stable, {stated // 2} stated beside), 0 bytes read "
        "from 25 % to the promotion"
    )
    assert sum(killer.killed.values()) == 4 * KILLS_PER_STEP
    assert witness.violations == []
    assert witness.checks > 4
    assert witness.highest_bytes > stable_bytes


def test_nobody_logged_a_traceback(world: World) -> None:
    for program in (*world.system.agents.values(), *world.system.operators.values()):
        assert "Traceback" not in program.log_file.read_text(errors="replace"), program.name
