"""The host tier's decisions are made again, too: loads, victims, and pressure."""

from __future__ import annotations

import json
import os

from fakes.agent_bench import open_bench
from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods
from modelcache_agent.decide.host_pressure import MemorySign, MemorySigns
from modelcache_agent.inputs.records import Decided, read_records
from modelcache_agent.inputs.replay import summarize
from modelcache_api.names import Tier

MIB = 1 << 20
MODELS = ["m0", "m1", "m2"]
OPTIONS = ("--host-capacity=5Mi", "--input-log=64Mi", "--disk-policy=value")
LOW = MemorySigns((MemorySign("the node", 1 * MIB, 100 * MIB),))
GOOD = MemorySigns((MemorySign("the node", 90 * MIB, 100 * MIB),))


async def test_what_the_host_tier_decided_is_decided_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    signs = {"now": GOOD}
    monkeypatch.setattr("modelcache_agent.agent.read_signs", lambda: signs["now"])
    monkeypatch.setattr("modelcache_agent.decide.host_pressure.CALM_SECONDS", 0.0)
    with open_bench(tmp_path) as bench:
        for seed, uid in enumerate(MODELS):
            bench.offer(uid, {"model.safetensors": safetensors_body(2 * MIB, seed)})
        entries = [
            bench.entry(uid, evictable=True).model_copy(update={"tier": Tier.HOST})
            for uid in MODELS
        ]
        caches = {f"search/{uid}": uid for uid in MODELS}
        pods = PlayedPods(bench.root, tmp_path / "kubelet")
        (tmp_path / "gone").mkdir()

        def tier_of(uid):
            return bench.cluster.entry(uid).tier

        def count_locked():
            return sum(entry.tier is Tier.HOST for entry in bench.cluster.status.entries)

        def find_unlocked():
            return next(uid for uid in MODELS if tier_of(uid) is not Tier.HOST)

        async with bench.started(*OPTIONS):
            bench.cluster.want(*entries, caches=caches)
            await bench.until(lambda: count_locked() == 2, "two to be locked")
            for number in range(3):
                pod = Pod(uid=f"pod-{number}", cache=find_unlocked())
                volume = pods.add(pod)
                await bench.until(lambda v=volume: v.is_ready, "the volume")
                (bench.root / "pods" / pod.uid).rename(tmp_path / "gone" / pod.uid)
                bench.cluster.nudge()
                await bench.until(lambda uid=pod.cache: tier_of(uid) is Tier.HOST, "its turn")
            signs["now"] = LOW
            bench.cluster.nudge()
            await bench.until(lambda: count_locked() < 2, "memory to be given back")
            signs["now"] = GOOD
            bench.cluster.nudge()
            await bench.until(lambda: count_locked() == 2, "two to be locked again")
        lines = (bench.root / "inputs" / "current.jsonl").read_text().splitlines()
        decided = [r for r in read_records(lines) if isinstance(r, Decided)]
        assert any(one.world.host.condemned for one in decided), "some had to make way"
        assert any(one.world.host.pressure.cause for one in decided)
        assert summarize(lines).differences == 0
        told = json.loads((bench.root / "decisions.json").read_bytes())["decisions"]
        gone = [one for one in told if one["kind"] == "Evicted"]
        assert {one["tier"] for one in told} == {"Host"}
        assert any(one["cause"].endswith("needs room in memory") for one in gone)
        assert all(one["policy"] == "value" and "attaches=" in one["inputs"] for one in gone)
