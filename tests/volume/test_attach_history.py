"""Attaches of pods decide who goes, under a policy that counts them, by the whole agent."""

from __future__ import annotations

import json
import logging

import pytest

from fakes.agent_bench import open_bench
from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.store_world import opened, publish
from fakes.volume_world import PlayedPods
from modelcache_agent.decide.volumes import Filling, VolumeView
from modelcache_agent.volume.companions import Companions
from modelcache_agent.volume.keeper import VolumeKeeper
from modelcache_api.names import Reason, VolumeState

MIB = 1 << 20
TWO_DAYS = 48 * 3600.0


async def want(bench, *uids):
    entries = [bench.entry(uid, evictable=uid != "new") for uid in uids]
    bench.cluster.want(*entries, caches={"search/minilm": uids[0]})
    await bench.until_state(uids[-1], "Cached")


def find_load(book):
    if not book.exists():
        return None
    (row,) = json.loads(book.read_bytes())["contents"].values()
    return row["load"]


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


async def test_the_cost_of_a_transfer_is_measured_and_written_down(tmp_path):
    with open_bench(tmp_path) as bench:
        files = {f"part-{number}.safetensors": safetensors_body(MIB, number) for number in range(6)}
        bench.offer("v1", files)
        book = bench.root / "history.json"
        async with bench.started("--max-bandwidth=3Mi", "--streams=1"):
            await want(bench, "v1")
            await bench.until(lambda: find_load(book) is not None, "the measured cost")
    seconds = find_load(book)["seconds_per_byte"] * 3 * MIB
    assert 0.25 < seconds < 60.0, "a second at the rate that is allowed, on an idle machine"


def test_a_volume_counts_as_one_attach_and_as_one_at_least_while_its_pod_lives(tmp_path):
    now = [1_000_000.0]
    with opened(tmp_path / "store", clock=lambda: now[0]) as store:
        digest = publish(store)
        pods = PlayedPods(store.layout.root, tmp_path / "kubelet")
        pods.add(Pod())
        keeper = VolumeKeeper(store, Companions(store, 0.0, lambda: now[0]))
        ((volume,), _) = keeper.look()
        filling = Filling("v1", digest, None)
        keeper.serve(
            [VolumeView(volume.key, "", VolumeState.READY, Reason.CACHED, filling=filling)]
        )
        now[0] += 10 * TWO_DAYS
        ((volume,), _) = keeper.look()
        assert volume.is_filled
        assert store.history.look(digest).attaches == 1.0
        assert store.history.look(digest).visits == 1
        assert (store.layout.root / "history.json").exists(), "it is on the disk at once"
        pods.remove(Pod())
        now[0] += TWO_DAYS
        assert keeper.look()[0] == ()
        assert store.history.look(digest).attaches == pytest.approx(0.5)
