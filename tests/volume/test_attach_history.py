"""Attaches of pods decide who goes, under a policy that counts them, by the whole agent."""

from __future__ import annotations

import logging

from fakes.agent_bench import open_bench
from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods

MIB = 1 << 20


async def want(bench, *uids):
    entries = [bench.entry(uid, evictable=uid != "new") for uid in uids]
    bench.cluster.want(*entries, caches={"search/minilm": uids[0]})
    await bench.until_state(uids[-1], "Cached")


async def test_C60_attaches_before_a_restart_outweigh_a_later_arrival(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with open_bench(tmp_path) as bench:
        bench.capacity = 5 * MIB
        for seed, uid in enumerate(("attached", "idle", "new")):
            bench.offer(uid, {"model.safetensors": safetensors_body(2 * MIB, seed)})
        pods = PlayedPods(bench.root, tmp_path / "kubelet")
        async with bench.started():
            await want(bench, "attached")
            volume = pods.add(Pod())
            await bench.until(lambda: volume.is_ready, "the volume to be ready")
            pods.remove(Pod())
            await want(bench, "attached", "idle")
        async with bench.started("--disk-policy=value"):
            await want(bench, "attached", "idle", "new")
            await bench.until(lambda: not bench.tree("idle").exists(), "the idle model to go")
            assert bench.tree("attached").exists()
    (line,) = [r.getMessage() for r in caplog.records if "evicted version=" in r.getMessage()]
    assert "policy=value score=0 attaches=0.000" in line
    assert line.endswith(": uid=new needs room")
