"""Agents that are killed again and again: no half file is ever served, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal

import pytest

from fakes.agent_kills import gate_of, kill_agent
from fakes.fetch_world import safetensors_body
from fakes.store_world import read_tree
from modelcache_agent.tiers.durable import walk_files

MIB = 1 << 20
# Two whole pieces and the beginning of a third.
MODEL = {"model.safetensors": safetensors_body(17 * MIB), "config.json": b"{}"}


@pytest.mark.parametrize("percent", [1, 50, 99])
def test_C13_ten_kills_at_the_same_place_never_serve_a_half_file(bench, percent):
    bench.offer("v1", MODEL)
    gate, size = gate_of(bench, "v1"), len(MODEL["model.safetensors"])
    for number in range(10):
        gate.close(size * percent // 100)
        kill_agent(bench, bench.entry("v1"), gate.reached.is_set)
        gate.hang_up.set()
        for folder in ("versions", "blobs/sha256", "records"):
            assert list((bench.root / folder).iterdir()) == [], f"after kill {number}"
        assert not (bench.root.parent / "label").exists()
    gate.close(None)
    asyncio.run(finish(bench))


async def finish(bench) -> None:
    bench.cluster.want(bench.entry("v1"))
    async with bench.started():
        await bench.until(lambda: bench.cluster.labels, "the label")
        assert read_tree(bench.tree("v1")) == MODEL


def test_C15_after_twenty_kills_anywhere_the_deleted_entry_leaves_an_empty_store(bench):
    chance = random.Random(15)
    label = bench.root.parent / "label"
    steps = 0
    for number in range(20):
        # Each ModelVersion is a new object with a uid of its own, as after delete and create.
        uid = f"uid-{chance.randrange(1 << 32):08x}"
        bench.offer(uid, {"model.safetensors": safetensors_body(300_000, number)})
        gate = gate_of(bench, uid)
        if number % 2 == 0:
            steps += 1
            label.unlink(missing_ok=True)
            # An agent that needed fewer steps than that dies when all is done.
            kill_agent(bench, bench.entry(uid), label.exists, dying_at(steps))
        else:
            gate.close(chance.randrange(len(gate.body)))
            kill_agent(bench, bench.entry(uid), gate.reached.is_set)
            gate.hang_up.set()
    for name in (f"records/.{'a' * 64}.json.tmp", f"blobs/sha256/.{'b' * 64}.1.tmp"):
        (bench.root / name).write_bytes(b"x" * 10_000)
    assert list(walk_files(bench.root / "partial")), "there is something to reclaim"
    asyncio.run(empty(bench))


def dying_at(number):
    left = [number]

    def step(_name):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return step


async def empty(bench) -> None:
    bench.cluster.want()
    async with bench.started():

        def left():
            return sorted(
                str(path.relative_to(bench.root))
                for path in walk_files(bench.root)
                if path.parent != bench.root
            )

        await bench.until(lambda: left() == [], f"an empty store: {left()}")
        for folder in ("blobs/sha256", "partial", "versions", "records", "released", "quarantine"):
            assert list((bench.root / folder).iterdir()) == [], folder
        assert {path.name for path in bench.root.iterdir() if path.is_file()} == {
            "history.json",
            "lock",
            "store.json",
        }
        await bench.until(lambda: books(bench)[-1:] == [(0, 0, 0)], "an empty book")
        assert books(bench)[0][0] > 0, "what was left counted as used until it was gone"


def books(bench):
    disks = (tier for status in bench.cluster.status_writes for tier in status.tiers)
    return [(disk.used_bytes, disk.reserved_bytes, disk.pending_release_bytes) for disk in disks]
