"""`peer-cold-start`: what the store serves when 20 nodes want one model at the same moment.

A real control plane, one operator, 20 agents as processes, a model of 500 MB in SeaweedFS behind a
proxy that counts bodies. The second round slows the store and kills 6 of the agents (30 %) at
moments drawn from a seed, the one that reads the store first among them, and starts them again. The
third does without peers.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from figure import Figure, make_figure
from local_system import local_system

from fakes.fault_proxy import Fault, FaultProxy
from fakes.world import World
from modelcache_testbed.models import make_safetensors

AGENTS, MODEL_BYTES = 20, 500_000_000
KILLED = 6
# About 60 MB/s over four streams: slow enough that the reader is killed in the middle.
_SLOW = Fault(trickle=(512 * 1024, 0.03))
DEADLINE_SECONDS = 400.0


def measure() -> Figure:
    """All rounds; the figure is the copies that the store served."""
    with _fleet() as (world, team):
        calm, calm_seconds = _round(world, team, "calm", None)
        wild, wild_seconds = _round(world, team, "wild", lambda proxy: _kill_some(world, proxy))
    with _fleet("--peers=false") as (world, team):
        alone, alone_seconds = _round(world, team, "alone", None)
    return make_figure(
        "peer-cold-start",
        "copies served by the store",
        {
            "ours": [calm],
            "with 30 % killed": [wild],
            "without peers": [alone],
            "one copy": [1.0],
        },
        ceilings=("one copy",),
        notes=(
            f"{AGENTS} agents, {MODEL_BYTES} bytes: {calm_seconds:.0f} s; with {KILLED} killed and"
            f" restarted {wild_seconds:.0f} s; without peers {alone_seconds:.0f} s; every tree"
            " compared with the bucket"
        ),
    )


@contextmanager
def _fleet(*options: str) -> Iterator[tuple[World, str]]:
    """Agents on all nodes under one operator with these options, and a namespace."""
    with local_system() as (cluster, store, system):
        system.add_operator(extra=("--lease-list-interval=1s", *options))
        world = World(cluster, store, system, "cold")
        for number in range(AGENTS):
            world.add_node(f"n{number:02}", capacity="2Gi")
        team = world.add_namespace("team")
        world.wait(lambda: all(map(world.cache_node, world.nodes)), "all CacheNodes", 120)
        yield world, team


def _round(
    world: World, team: str, name: str, disturb: Callable[[FaultProxy], None] | None
) -> tuple[float, float]:
    host, _, port = world.store.endpoint.removeprefix("http://").partition(":")
    with FaultProxy((host, int(port))) as proxy:
        expected = _put_shards(world, name)
        if disturb is not None:
            proxy.script(".safetensors", _SLOW)
        world.apply_version(team, name, name, endpoint=proxy.endpoint)
        began = time.monotonic()
        world.apply_cache(team, name, name, copies=AGENTS)
        if disturb is not None:
            disturb(proxy)
        world.wait_ready(team, name, copies=AGENTS, seconds=DEADLINE_SECONDS)
        seconds = time.monotonic() - began
        copies = proxy.total_bytes / MODEL_BYTES
        print(f"  {name}: {copies:.3f} copies, {seconds:.1f} s", flush=True)
        for node in world.nodes:
            if expected not in world.trees(node).values():
                raise SystemExit(f"{node} holds other bytes")
        world.cluster.kubectl("delete", "modelcache", name, "-n", team)
        world.wait_gone(*world.nodes, seconds=120)
    return copies, seconds


def _put_shards(world: World, prefix: str) -> dict[str, str]:
    """Two files, and their digests by path."""
    digests = {}
    for number in (1, 2):
        body = make_safetensors(MODEL_BYTES // 2, seed=number + ord(prefix[0]))
        path = f"model-{number}.safetensors"
        world.bucket.put(f"{prefix}/{path}", body)
        digests[path] = hashlib.sha256(body).hexdigest()
    return digests


def _kill_some(world: World, proxy: FaultProxy) -> None:
    chance = random.Random(30)

    def reading_nodes() -> list[str]:
        states = {node: [e["state"] for e in world.entries(node).values()] for node in world.nodes}
        return [node for node, found in states.items() if "Downloading" in found]

    world.wait(lambda: proxy.total_bytes > MODEL_BYTES // 10, "a tenth of the source read")
    world.wait(lambda: bool(reading_nodes()), "a node that reads the store")
    reading = reading_nodes()
    others = [node for node in world.nodes if node not in reading]
    for node in (*reading[:1], *chance.sample(others, KILLED - 1)):
        world.system.agents[node].kill()
        time.sleep(chance.uniform(0.5, 2.5))
        world.system.agents[node].start()


if __name__ == "__main__":
    print(measure())
