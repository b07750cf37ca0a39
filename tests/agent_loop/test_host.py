"""A version's way into locked memory and out of it, through the whole agent on real files."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from fakes.fetch_world import safetensors_body
from fakes.page_room import disk_reads, drop, locked_bytes, reading, resident
from fakes.played_kubelet import Pod
from fakes.store_world import flip_bits, read_tree
from fakes.volume_world import PlayedPods
from modelcache_agent.decide.host_pressure import MemorySign, MemorySigns
from modelcache_api.names import Tier

MIB = 1 << 20
ON = "--host-capacity=64Mi"


def bodies(size=9 * MIB, seed=0):
    return {"model.safetensors": safetensors_body(size, seed), "config.json": b"{}"}


def in_host(bench, uid, **changes):
    return bench.entry(uid).model_copy(update={"tier": Tier.HOST, **changes})


def book(bench):
    return next((tier for tier in bench.cluster.status.tiers if tier.name is Tier.HOST), None)


def journal(bench):
    """The node's decisions, the newest first."""
    path = bench.root / "decisions.json"
    return json.loads(path.read_bytes())["decisions"] if path.exists() else []


async def until_tier(bench, uid, tier) -> None:
    def reached():
        entry = bench.cluster.entry(uid)
        return entry is not None and entry.tier is tier

    await bench.until(reached, f"{uid} in {tier}")


async def until_reason(bench, uid, reason):
    await bench.until(lambda: (bench.cluster.state(uid) or ("", ""))[1] == reason, reason)
    return bench.cluster.entry(uid)


async def test_a_version_is_downloaded_locked_labelled_and_let_go(bench):
    bench.offer("v1", bodies())
    entry = in_host(bench, "v1")
    bench.cluster.want(entry)
    before, began = locked_bytes(), disk_reads()
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        await bench.until(lambda: bench.cluster.in_memory == {entry.label_key}, "the label")
        # The metadata of a new store aside, nothing of the blob was read back.
        assert disk_reads() - began < 2 * MIB
        assert locked_bytes() - before >= entry.size_bytes
        assert book(bench).used_bytes == entry.size_bytes
        assert bench.cluster.status.host_summary.endswith("/64Mi")
        weights = bench.tree("v1") / "model.safetensors"
        locked_at_fall = []
        bench.cluster.on_memory = lambda _before, _after: locked_at_fall.append(locked_bytes())
        bench.cluster.want(bench.entry("v1"))
        await until_tier(bench, "v1", Tier.DISK)
        await bench.until(lambda: locked_bytes() == before, "the pages to be unlocked")
        assert locked_at_fall[0] - before >= entry.size_bytes, "the label falls back first"
        assert bench.cluster.labels == {entry.label_key}
        await bench.until(lambda: resident(weights) == 0, "the pages to go")


async def test_a_reader_with_safetensors_gets_its_pages_from_the_locked_copy(bench):
    bench.offer("v1", bodies())
    bench.cluster.want(in_host(bench, "v1"))
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        program = (
            "import sys, numpy\n"
            "from safetensors.numpy import load_file\n"
            "io = lambda: int(open('/proc/self/io').read().split('read_bytes: ')[1].split()[0])\n"
            "began = io()\n"
            "total = sum(t.nbytes for t in load_file(sys.argv[1]).values())\n"
            "print(io() - began, total > 8 << 20)\n"
        )
        weights = bench.tree("v1") / "model.safetensors"
        command = [sys.executable, "-c", program, str(weights)]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        read, is_whole = ran.stdout.split()
        # A page of a library's code may come from the disk; the weights are 8 MiB.
        assert (int(read) < 64 << 10, is_whole) == (True, b"True"), read


async def test_no_pod_is_shown_a_new_version_before_it_is_locked(bench):
    bench.offer("v1", bodies(33 * MIB))
    entry = in_host(bench, "v1")
    pods = PlayedPods(bench.root, bench.root.parent / "kubelet")
    async with bench.started(ON):
        volume = pods.add(Pod(cache="m"))
        bench.cluster.want(entry, caches={f"{Pod(cache='m').namespace}/m": "v1"})
        model = volume.folder.model
        await bench.until(model.is_dir, "the volume to be filled")
        assert locked_bytes() >= entry.size_bytes
        await until_tier(bench, "v1", Tier.HOST)


async def test_a_later_promotion_waits_for_readers_and_lets_them_live(bench, monkeypatch):
    monkeypatch.setattr("modelcache_agent.host_keeper._RETRY_SECONDS", 0.5)
    bench.offer("v1", bodies())
    bench.cluster.want(bench.entry("v1"))
    async with bench.started(ON):
        await bench.until_state("v1", "Cached")
        before = locked_bytes()
        with reading(bench.tree("v1") / "model.safetensors") as reader:
            bench.cluster.want(in_host(bench, "v1"))
            entry = await until_reason(bench, "v1", "HostTierBypassed")
            assert (entry.tier, locked_bytes()) == (Tier.DISK, before)
            assert reader.poll() is None
        await until_tier(bench, "v1", Tier.HOST)


async def test_C22_a_damaged_piece_is_found_while_loading_and_fetched_again(bench):
    bench.offer("v1", bodies())
    bench.cluster.want(bench.entry("v1"))
    async with bench.started():
        await bench.until_state("v1", "Cached")
    weights = bench.tree("v1") / "model.safetensors"
    flip_bits(weights, 5 * MIB)
    drop(weights)
    bench.cluster.want(in_host(bench, "v1"))
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        assert read_tree(bench.tree("v1")) == bodies()


async def test_a_restart_locks_again_before_it_says_a_word(bench):
    bench.offer("v1", bodies())
    entry = in_host(bench, "v1")
    bench.cluster.want(entry)
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        await bench.until(lambda: bench.cluster.in_memory, "the label")
    falls = []
    bench.cluster.on_memory = lambda before, after: falls.append((before, after))
    writes = len(bench.cluster.status_writes)
    asked = len(bench.objects.requests)
    began = disk_reads()
    bench.cluster.nudge()
    async with bench.started(ON):
        await asyncio.sleep(0.6)
        assert bench.cluster.entry("v1").tier is Tier.HOST
        assert locked_bytes() >= entry.size_bytes
    assert (falls, len(bench.cluster.status_writes) - writes) == ([], 0)
    assert len(bench.objects.requests) == asked
    assert disk_reads() - began < MIB


async def test_a_node_that_is_unfit_says_so_once_and_its_disk_goes_on(bench, caplog):
    bench.offer("v1", bodies(MIB))
    bench.cluster.want(in_host(bench, "v1"))
    async with bench.started("--host-capacity=1000Ti"):
        entry = await until_reason(bench, "v1", "HostTierUnfit")
        assert (entry.state, entry.tier) == ("Cached", Tier.DISK)
        assert "a capacity of 1Pi" in entry.message
        assert bench.cluster.labels
        assert not bench.cluster.in_memory
        assert bench.cluster.status.host_summary == "unfit"
        assert bench.cluster.status.host_unfit == entry.message
        assert book(bench) is None
    assert sum("HostTierUnfit" in r.getMessage() for r in caplog.records) == 1


async def test_without_a_host_tier_the_entry_says_what_is_missing(bench):
    bench.offer("v1", bodies(MIB))
    bench.cluster.want(in_host(bench, "v1"))
    async with bench.started():
        entry = await until_reason(bench, "v1", "HostTierUnfit")
        assert "host capacity" in entry.message
        assert bench.cluster.status.host_summary is None
        assert bench.cluster.status.host_unfit is None


async def test_C16_what_does_not_fit_stays_on_the_disk_with_the_numbers(bench):
    bench.offer("v1", bodies(40 * MIB, 1))
    bench.offer("v2", bodies(30 * MIB, 2))
    bench.cluster.want(in_host(bench, "v1"))
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        bench.cluster.want(in_host(bench, "v1"), in_host(bench, "v2"))
        entry = await until_reason(bench, "v2", "HostTierBypassed")
        assert (entry.state, entry.tier) == ("Cached", Tier.DISK)
        assert "capacity 64Mi" in entry.message
        assert bench.cluster.entry("v1").tier is Tier.HOST
        await bench.until(lambda: len(bench.cluster.labels) == 2, "both labels")
        assert bench.cluster.in_memory == {bench.entry("v1").label_key}


async def test_C59_pages_that_readers_map_are_booked_until_they_close_them(bench):
    bench.offer("v1", bodies(40 * MIB))
    bench.cluster.want(in_host(bench, "v1"))
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        blob = bench.tree("v1") / "model.safetensors"
        with reading(blob) as reader:
            bench.cluster.want(bench.entry("v1"))
            await bench.until(
                lambda: book(bench).pending_release_bytes >= 40 * MIB, "lingering bytes"
            )
            assert (book(bench).used_bytes, reader.poll()) == (0, None)
        bench.cluster.nudge()
        await bench.until(lambda: book(bench).pending_release_bytes == 0, "the reader's end")


async def test_C54_under_pressure_memory_is_given_back_and_taken_again(bench, monkeypatch):
    bench.offer("v1", bodies())
    bench.cluster.want(in_host(bench, "v1"))
    low = MemorySigns((MemorySign("the node", 1 * MIB, 100 * MIB),))
    good = MemorySigns((MemorySign("the node", 90 * MIB, 100 * MIB),))
    signs = {"now": good}
    monkeypatch.setattr("modelcache_agent.agent.read_signs", lambda: signs["now"])
    monkeypatch.setattr("modelcache_agent.decide.host_pressure.CALM_SECONDS", 0.0)
    before = locked_bytes()
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        signs["now"] = low
        bench.cluster.nudge()
        entry = await until_reason(bench, "v1", "HostMemoryLow")
        assert entry.tier is Tier.DISK
        await bench.until(lambda: locked_bytes() == before, "the pages to be unlocked")
        assert bench.cluster.labels
        assert not bench.cluster.in_memory
        await bench.until(lambda: len(journal(bench)) == 2, "the journal")
        gone, began = journal(bench)
        assert (began["kind"], began["tier"]) == ("PressureBegan", "Host")
        assert began["cause"] == gone["cause"] == "the node has 1Mi left of 100Mi: less than 5%"
        assert (gone["kind"], gone["tier"], gone["policy"]) == ("Evicted", "Host", "lru")
        assert (gone["uids"], gone["sizeBytes"]) == (["v1"], bench.entry("v1").size_bytes)
        signs["now"] = good
        bench.cluster.nudge()
        await until_tier(bench, "v1", Tier.HOST)
        assert journal(bench)[0]["kind"] == "PressureEnded"


async def test_while_the_api_server_is_away_nothing_labelled_is_unlocked(bench):
    bench.offer("v1", bodies())
    bench.cluster.want(in_host(bench, "v1"))
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        await bench.until(lambda: bench.cluster.in_memory, "the label")
        locked = locked_bytes()
        bench.cluster.is_away = True
        bench.cluster.want(bench.entry("v1"))
        await asyncio.sleep(0.5)
        assert locked_bytes() == locked
        bench.cluster.is_away = False
        await bench.until(lambda: locked_bytes() < locked, "the pages to be unlocked")


async def test_a_version_that_is_dropped_leaves_memory_and_disk(bench):
    bench.offer("v1", bodies())
    bench.cluster.want(in_host(bench, "v1"))
    before = locked_bytes()
    async with bench.started(ON):
        await until_tier(bench, "v1", Tier.HOST)
        bench.cluster.want()
        await bench.until(lambda: not bench.tree("v1").exists(), "the bytes to go")
        assert locked_bytes() == before
        assert not bench.cluster.labels
        await bench.until(lambda: book(bench).used_bytes == 0, "an empty book")
