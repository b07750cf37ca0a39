"""`rollback`: how long an old version takes to be everybody's again, and what is read for it.

From the change of the spec until the last of 200 attached clients knows: real agents as processes,
real clients of the library on the sockets of their pods' volumes (written as the volume driver
writes them, without the mount). And until the last CacheNode of 1,000 played nodes is written:
real objects and one real operator, agents without bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from figure import Figure, make_figure
from local_system import local_system

import modelcache
from fakes.fault_proxy import FaultProxy
from fakes.played_fleet import PlayedFleet
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods
from fakes.world import API, World
from modelcache import Attachment
from modelcache_kube import CACHE_NODES, MODEL_CACHES, Change, ConnectConfig, KubeClient, connect

CLIENTS, AGENTS, ROUNDS = 200, 2, 5
NODES = 1000
MODEL_BYTES = 20_000_000
# An agent takes 16 connections of a pod.
CLIENTS_OF_A_POD = 10
WEIGHT = 25
DEADLINE_SECONDS = 600.0
# The aim of the design notes for 1,000 nodes, shown as the ceiling.
AIM_SECONDS = 10.0


def measure() -> Figure:
    """Both parts; the figure is the time until the last client."""
    clients, read = _measure_clients()
    nodes = _measure_nodes()
    return make_figure(
        "rollback",
        "s",
        {"ours": clients, f"last of {NODES} CacheNodes": nodes, "aim": [AIM_SECONDS]},
        ceilings=("aim",),
        notes=(
            f"{CLIENTS} clients on {AGENTS} agents, {ROUNDS} rollbacks from {WEIGHT} %: {read} "
            f"bytes read from the store; {NODES} played nodes, one operator"
        ),
    )


# --- clients of real agents ---------------------------------------------------------------------


def _measure_clients() -> tuple[list[float], int]:
    """Seconds of each round, and bytes that the store has served in all of them."""
    with local_system() as (cluster, store, system), tempfile.TemporaryDirectory() as folder:
        host, _, port = store.endpoint.removeprefix("http://").partition(":")
        system.add_operator(extra=("--lease-list-interval=1s",))
        world = World(cluster, store, system, "rollback")
        with FaultProxy((host, int(port))) as proxy:
            team = _prepare(world, proxy.endpoint)
            with _attached(world, team, Path(folder)) as clients:
                _wish(world, team, _canary())
                _until_all(clients, WEIGHT)
                before = proxy.total_bytes
                rounds = []
                for _ in range(ROUNDS):
                    began = time.monotonic()
                    _wish(world, team, None)
                    _until_all(clients, None)
                    rounds.append(time.monotonic() - began)
                    print(f"  {len(clients)} clients: {rounds[-1]:.2f} s", flush=True)
                    _wish(world, team, _canary())
                    _until_all(clients, WEIGHT)
                return rounds, proxy.total_bytes - before


def _prepare(world: World, endpoint: str) -> str:
    for number in range(AGENTS):
        world.add_node(f"n{number}")
    team = world.add_namespace("team")
    for number in (1, 2):
        world.put_model(f"v{number}", size_bytes=MODEL_BYTES, seed=number)
        world.apply_version(team, f"m-v{number}", f"v{number}", endpoint=endpoint)
    world.apply_cache(team, "m", "m-v1", copies=AGENTS)
    world.wait_ready(team, "m", copies=AGENTS, seconds=DEADLINE_SECONDS)
    return team


@contextmanager
def _attached(world: World, team: str, kubelet: Path) -> Iterator[list[Attachment]]:
    """Clients in pods of all nodes, each with a line to its agent."""
    with contextlib.ExitStack() as stack:
        clients: list[Attachment] = []
        volumes = [
            PlayedPods(world.system.store_of(node), kubelet / node).add(
                Pod(uid=str(uuid.uuid4()), namespace=team, name=f"{node}-{number}", cache="m")
            )
            for number in range(-(-CLIENTS // (AGENTS * CLIENTS_OF_A_POD)))
            for node in world.nodes
        ]
        for number in range(CLIENTS):
            root = volumes[number % len(volumes)].folder.content
            clients.append(stack.enter_context(modelcache.attach(root=root, timeout=120)))
        world.wait(lambda: all(one.is_connected for one in clients), "all lines", 120)
        yield clients


def _canary() -> dict[str, Any]:
    return {"modelVersion": "m-v2", "weight": WEIGHT}


def _wish(world: World, team: str, canary: dict[str, Any] | None) -> None:
    path = f"{API}/namespaces/{team}/modelcaches/m"
    world.cluster.api.patch(path, {"spec": {"canary": canary}})


def _until_all(clients: list[Attachment], weight: int | None) -> None:
    """Until every client says so by itself."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    waiting = list(clients)
    while waiting := [one for one in waiting if one.weights().get("canary") != weight]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(waiting)} of {len(clients)} clients know nothing of it")
        time.sleep(0.005)
    if lost := sum(one.fallbacks for one in clients):
        raise SystemExit(f"{lost} lines to agents were lost")


# --- many nodes ---------------------------------------------------------------------------------


def _measure_nodes() -> list[float]:
    with local_system() as (cluster, store, system):
        world = World(cluster, store, system, "many")
        names = [f"many-n{number:04}" for number in range(NODES)]
        for name in names:
            cluster.add_node(name, labels={"world": "many"}, wait=False)
        team = world.add_namespace("team")
        for number in (1, 2):
            world.put_model(f"v{number}", size_bytes=1000, seed=number)
            world.apply_version(team, f"m-v{number}", f"v{number}")
        world.apply_cache(team, "m", "m-v1", copies=NODES)
        system.add_operator()
        return asyncio.run(_roll_back(world, team, names))


async def _roll_back(world: World, team: str, names: list[str]) -> list[float]:
    config = ConnectConfig(kubeconfig=world.cluster.kubeconfig, user_agent="benchmark")
    async with connect(config) as kube, PlayedFleet(kube) as fleet:
        await fleet.add(*names)
        told = _Told()
        watching = asyncio.create_task(told.watch(kube))
        try:
            # During a rollout no further node is taken.
            await asyncio.to_thread(
                world.wait_ready, team, "m", copies=NODES, seconds=DEADLINE_SECONDS
            )
            await _patch(kube, team, _canary())
            await told.until(NODES)
            print(f"  {NODES} nodes: the canary is everywhere", flush=True)
            began = time.monotonic()
            await _patch(kube, team, None)
            await told.until(0)
            seconds = time.monotonic() - began
            print(f"  {NODES} nodes: {seconds:.2f} s", flush=True)
            return [seconds]
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


class _Told:
    """Which nodes are told of a canary with a weight, as their CacheNodes are written."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._changed = asyncio.Event()

    async def watch(self, kube: KubeClient) -> None:
        async for event in kube.watch(CACHE_NODES):
            if event.type in {Change.ADDED, Change.MODIFIED}:
                name = event.object["metadata"]["name"]
                refs = event.object["spec"].get("caches", ())
                is_told = any(ref.get("canaryWeight") for ref in refs)
                (self._nodes.add if is_told else self._nodes.discard)(name)
                self._changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self._nodes) != count:
                self._changed.clear()
                await self._changed.wait()


async def _patch(kube: KubeClient, team: str, canary: dict[str, Any] | None) -> None:
    await kube.merge_patch(MODEL_CACHES, "m", {"spec": {"canary": canary}}, namespace=team)


if __name__ == "__main__":
    print(measure())
