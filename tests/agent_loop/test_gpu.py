"""A version's way into GPU memory and out of it: the whole agent on the emulated device."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import modelcache
from fakes.fetch_world import safetensors_body
from fakes.kubelet_devices import kubelet_gives
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods
from modelcache_agent.ports.device import DeviceLostError, DeviceUnavailableError
from modelcache_agent.tiers.gpu.emulated import EmulatedDevice
from modelcache_api.names import Priority, Tier

MIB = 1 << 20
ON = ("--gpu-capacity=16Mi", "--gpu-device=emulated")
READER = Pod(cache="m")
CACHES = {f"{READER.namespace}/m": "v1", f"{READER.namespace}/n": "v2"}
# What a pod's process does: by the library, through the volume's socket.
READ = """
import hashlib, json, sys, warnings
import modelcache
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found = modelcache.attach(root=sys.argv[1], on_miss="raise").version().on_device()
seen = {} if found is None else {
    name: hashlib.sha256(found.copy_to_host(name)).hexdigest() for name in found
}
emulated = found is not None and found.is_emulated
told = [str(one.message) for one in told if one.category is modelcache.FallbackWarning]
print(json.dumps({"seen": seen, "emulated": emulated, "told": told}))
"""


def bodies(size=3 * MIB, seed=0):
    return {"model.safetensors": safetensors_body(size, seed), "config.json": b"{}"}


def on_gpu(bench, uid, **changes):
    return bench.entry(uid).model_copy(update={"tier": Tier.GPU, **changes})


def book(bench):
    return next((tier for tier in bench.cluster.status.tiers if tier.name is Tier.GPU), None)


def digests(body):
    """SHA-256 of each tensor of a file, in order."""
    length = int.from_bytes(body[:8], "little")
    header, data = json.loads(body[8 : 8 + length]), body[8 + length :]
    return {
        name: hashlib.sha256(data[slice(*entry["data_offsets"])]).hexdigest()
        for name, entry in header.items()
        if name != "__metadata__"
    }


async def until_tier(bench, uid, tier) -> None:
    def reached():
        entry = bench.cluster.entry(uid)
        return entry is not None and entry.tier is tier

    await bench.until(reached, f"{uid} in {tier}")


async def until_reason(bench, uid, reason):
    await bench.until(lambda: (bench.cluster.state(uid) or ("", ""))[1] == reason, reason)
    return bench.cluster.entry(uid)


async def read_in_a_pod(volume):
    """What a second process is given through the volume's socket."""
    command = [sys.executable, "-c", READ, str(volume.folder.content)]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)


def map_here(volume):
    """Digests of torch's tensors on the shared memory."""
    with modelcache.attach(root=volume.folder.content, on_miss="raise") as attachment:
        tensors = attachment.version().tensors(device="cpu")
        assert "modelcache-emulated" in Path("/proc/self/maps").read_text()
        assert attachment.fallbacks == 0
        return {
            name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
            for name, tensor in tensors.items()
        }


@pytest.fixture
def devices(monkeypatch):
    """The devices that agents have opened, the last one last."""
    opened = []

    class Remembered(EmulatedDevice):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            opened.append(self)

    monkeypatch.setattr("modelcache_agent.tiers.gpu.emulated.EmulatedDevice", Remembered)
    return opened


@pytest.fixture
def pods(bench):
    return PlayedPods(bench.root, bench.root.parent / "kubelet")


async def test_a_version_goes_to_the_device_and_a_pods_process_reads_it_there(bench, pods, devices):
    offered = bodies()
    bench.offer("v1", offered)
    entry = on_gpu(bench, "v1")
    bench.cluster.want(entry, caches=CACHES)
    async with bench.started(*ON):
        await until_tier(bench, "v1", Tier.GPU)
        await bench.until(lambda: bench.cluster.on_device == {entry.label_key}, "the label")
        assert book(bench).used_bytes >= 3 * MIB
        assert bench.cluster.status.gpu_summary.endswith("/16Mi emulated")
        assert "no card is used" in bench.cluster.entry("v1").message
        volume = pods.add(READER)
        await bench.until(lambda: volume.folder.socket.exists() and volume.is_ready, "the volume")
        found = await read_in_a_pod(volume)
        assert found == {
            "seen": digests(offered["model.safetensors"]),
            "emulated": True,
            "told": [],
        }
        assert await asyncio.to_thread(map_here, volume) == digests(offered["model.safetensors"])
        on_card_at_fall = []
        bench.cluster.on_card = lambda _before, _after: on_card_at_fall.append(
            devices[-1].arena.used_bytes
        )
        bench.cluster.want(bench.entry("v1"), caches=CACHES)
        await until_tier(bench, "v1", Tier.DISK)
        assert on_card_at_fall[0] >= 3 * MIB, "the label falls back first"
        await bench.until(lambda: book(bench).pending_release_bytes >= 3 * MIB, "lingering bytes")
        pods.remove(READER)
        bench.cluster.nudge()
        await bench.until(lambda: book(bench).pending_release_bytes == 0, "the reader's end")
        assert bench.cluster.labels == {entry.label_key}
        assert devices[-1].arena.used_bytes == 0


async def test_a_restart_begins_empty_says_so_at_once_and_loads_again(bench, pods, devices):
    bench.offer("v1", bodies())
    entry = on_gpu(bench, "v1")
    bench.cluster.want(entry, caches=CACHES)
    async with bench.started(*ON):
        await until_tier(bench, "v1", Tier.GPU)
        await bench.until(lambda: bench.cluster.on_device, "the label")
    falls = []
    bench.cluster.on_card = lambda before, after: falls.append((len(before), len(after)))
    bench.cluster.nudge()
    asked = len(bench.objects.requests)
    async with bench.started(*ON):
        await bench.until(lambda: falls == [(1, 0), (0, 1)], "the label to fall and to rise")
        await until_tier(bench, "v1", Tier.GPU)
    assert len(bench.objects.requests) == asked
    bench.cluster.nudge()
    async with bench.started():
        entry = await until_reason(bench, "v1", "GpuUnavailable")
        assert (entry.state, entry.tier) == ("Cached", Tier.DISK)
        assert "GPU capacity" in entry.message
        await bench.until(lambda: not bench.cluster.on_device, "the label to fall")
        assert bench.cluster.status.gpu_summary is None


async def test_C63_a_device_that_is_lost_is_told_with_its_text_and_all_else_goes_on(
    bench, pods, devices, monkeypatch
):
    monkeypatch.setattr("modelcache_agent.decide.gpu.health._FIRST_SECONDS", 0.2)
    text = "Driver/library version mismatch"

    def lose():
        raise DeviceLostError(text)

    def mismatch(*_):
        raise DeviceUnavailableError(text)

    bench.offer("v1", bodies())
    entry = on_gpu(bench, "v1")
    bench.cluster.want(entry, caches=CACHES)
    async with bench.started(*ON):
        await until_tier(bench, "v1", Tier.GPU)
        await bench.until(lambda: bench.cluster.on_device, "the label")
        devices[-1].figures = lose
        with monkeypatch.context() as broken:
            broken.setattr("modelcache_agent.tiers.gpu.opening._emulate", mismatch)
            bench.cluster.nudge()
            told = await until_reason(bench, "v1", "GpuUnavailable")
            assert (told.state, told.tier) == ("Cached", Tier.DISK)
            assert text in told.message
            await bench.until(lambda: not bench.cluster.on_device, "the label to fall")
            assert bench.cluster.status.gpu_summary == "unavailable"
            assert book(bench) is None
            assert bench.cluster.labels == {entry.label_key}
            bench.offer("v2", bodies(MIB, 2))
            bench.cluster.want(entry, bench.entry("v2"), caches=CACHES)
            await bench.until_state("v2", "Cached")

        def is_back():
            bench.cluster.nudge()
            return bench.cluster.on_device == {entry.label_key}

        await bench.until(is_back, "the device to be tried again")


async def test_C66_others_that_take_the_card_push_out_what_no_pod_maps_and_no_more(
    bench, pods, devices
):
    bench.offer("v1", bodies(5 * MIB, 1))
    bench.offer("v2", bodies(5 * MIB, 2))
    wanted = (on_gpu(bench, "v1"), on_gpu(bench, "v2"))
    bench.cluster.want(*wanted, caches=CACHES)
    async with bench.started(*ON):
        await until_tier(bench, "v1", Tier.GPU)
        await until_tier(bench, "v2", Tier.GPU)
        volume = pods.add(READER)
        await bench.until(lambda: volume.folder.socket.exists() and volume.is_ready, "the volume")
        assert (await read_in_a_pod(volume))["seen"]
        devices[-1].foreign_bytes = 12 * MIB
        bench.cluster.nudge()
        told = await until_reason(bench, "v2", "GpuOutOfMemory")
        assert (told.state, told.tier) == ("Cached", Tier.DISK)
        assert "are others'" in told.message
        await bench.until(
            lambda: bench.cluster.on_device == {wanted[0].label_key}, "the reader's label"
        )
        assert (await read_in_a_pod(volume))["seen"]
        devices[-1].foreign_bytes = 0
        bench.cluster.nudge()
        await until_tier(bench, "v2", Tier.GPU)


async def test_C66_a_device_in_pieces_is_asked_once_more_after_somebody_made_way(
    bench, devices, monkeypatch
):
    bench.offer("v1", bodies(5 * MIB, 1))
    bench.offer("v2", bodies(5 * MIB, 2))
    old = on_gpu(bench, "v1", evictable=True)
    bench.cluster.want(old, caches=CACHES)
    async with bench.started(*ON):
        await until_tier(bench, "v1", Tier.GPU)
        # By the book there is room, and the device has none in one piece.
        figures = devices[-1].figures()
        monkeypatch.setattr(devices[-1], "figures", lambda: replace(figures, used_bytes=0))
        devices[-1].foreign_bytes = 6 * MIB
        bench.cluster.want(old, on_gpu(bench, "v2"), caches=CACHES)
        await until_tier(bench, "v2", Tier.GPU)
        told = await until_reason(bench, "v1", "GpuOutOfMemory")
        assert told.tier is Tier.DISK
        assert bench.cluster.on_device == {bench.entry("v2").label_key}


async def test_a_higher_priority_takes_the_device_and_the_victim_is_told_with_its_score(
    bench, devices
):
    bench.offer("v1", bodies(9 * MIB, 1))
    bench.offer("v2", bodies(9 * MIB, 2))
    old = on_gpu(bench, "v1", evictable=True)
    bench.cluster.want(old, caches=CACHES)
    async with bench.started(*ON):
        await until_tier(bench, "v1", Tier.GPU)
        low = on_gpu(bench, "v2", evictable=True, priority=Priority.LOW)
        bench.cluster.want(old, low, caches=CACHES)
        refused = await until_reason(bench, "v2", "GpuOutOfMemory")
        assert (refused.state, refused.tier) == ("Cached", Tier.DISK)
        high = low.model_copy(update={"priority": Priority.HIGH})
        bench.cluster.want(old, high, caches=CACHES)
        await until_tier(bench, "v2", Tier.GPU)
        await until_reason(bench, "v1", "GpuOutOfMemory")
    (told,) = json.loads((bench.root / "decisions.json").read_bytes())["decisions"]
    assert (told["kind"], told["tier"], told["uids"]) == ("Evicted", "GPU", ["v1"])
    assert told["cause"] == "uid=v2 needs room on the card"
    assert told["sizeBytes"] >= 9 * MIB
    assert told["policy"] == "lru"
    assert told["score"] is not None
    assert told["inputs"].startswith("last_used=")


async def test_what_does_not_fit_or_has_no_tensors_stays_on_the_disk_and_says_why(bench):
    bench.offer("v1", bodies(17 * MIB))
    bench.offer("v2", {"model.bin": os.urandom(1000), "config.json": b"{}"})
    bench.cluster.want(on_gpu(bench, "v1"), on_gpu(bench, "v2"), caches=CACHES)
    async with bench.started(*ON):
        large = await until_reason(bench, "v1", "GpuOutOfMemory")
        assert (large.state, large.tier) == ("Cached", Tier.DISK)
        assert "can be had at most" in large.message
        await until_reason(bench, "v2", "GpuUnsuited")
        assert not bench.cluster.on_device
        await bench.until(lambda: len(bench.cluster.labels) == 2, "both labels")


async def test_only_pods_that_the_kubelet_gave_the_device_map_it_and_only_their_namespaces(
    bench, pods, devices, tmp_path
):
    offered = bodies(MIB)
    bench.offer("v1", offered)
    theirs = on_gpu(bench, "v1")
    stranger = replace(
        READER, uid="22222222-2222-2222-2222-222222222222", namespace="other", name="spy-0"
    )
    caches = CACHES | {f"{stranger.namespace}/m": "v3"}
    bench.grants.versions["v3"] = bench.grants.versions["v1"]
    plain = bench.entry("v3").model_copy(
        update={"source_digest": theirs.source_digest, "content_digest": theirs.content_digest}
    )
    bench.cluster.want(theirs, plain, caches=caches)
    with kubelet_gives(tmp_path / "kubelet.sock") as given:
        async with bench.started(*ON, f"--pod-resources={tmp_path}/kubelet.sock"):
            await until_tier(bench, "v1", Tier.GPU)
            volumes = [pods.add(pod) for pod in (READER, stranger)]
            for volume in volumes:
                await bench.until(
                    lambda v=volume: v.folder.socket.exists() and v.is_ready, "the volumes"
                )
            refused = await read_in_a_pod(volumes[0])
            assert refused["seen"] == {}
            assert "GpuNotGiven" in refused["told"][0]
            uuid = devices[-1].identity.uuid
            given |= {(pod.namespace, pod.name): [uuid] for pod in (READER, stranger)}
            found = await read_in_a_pod(volumes[0])
            assert found["seen"] == digests(offered["model.safetensors"])
            spied = await read_in_a_pod(volumes[1])
            assert spied["seen"] == {}
            assert "not in GPU memory" in spied["told"][0]


async def test_a_damaged_file_is_found_on_the_way_to_the_device(bench, devices):
    bench.offer("v1", bodies())
    bench.cluster.want(bench.entry("v1"))
    async with bench.started():
        await bench.until_state("v1", "Cached")
    weights = bench.tree("v1") / "model.safetensors"
    kept = weights.stat()
    with weights.open("r+b") as file:
        file.seek(MIB)
        file.write(b"wrong")
    os.utime(weights, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    bench.cluster.want(on_gpu(bench, "v1"), caches=CACHES)
    async with bench.started(*ON):
        await until_tier(bench, "v1", Tier.GPU)
        assert weights.read_bytes() == bodies()["model.safetensors"]


async def test_while_the_api_server_is_away_nothing_labelled_leaves_the_device(bench, devices):
    bench.offer("v1", bodies(MIB))
    bench.cluster.want(on_gpu(bench, "v1"), caches=CACHES)
    async with bench.started(*ON):
        await until_tier(bench, "v1", Tier.GPU)
        await bench.until(lambda: bench.cluster.on_device, "the label")
        bench.cluster.is_away = True
        bench.cluster.want(bench.entry("v1"), caches=CACHES)
        await asyncio.sleep(0.5)
        assert devices[-1].arena.used_bytes > 0
        bench.cluster.is_away = False
        await bench.until(lambda: devices[-1].arena.used_bytes == 0, "the bytes to go")


async def test_what_leaves_the_device_is_in_host_memory_still(bench, devices):
    bench.offer("v1", bodies())
    bench.cluster.want(on_gpu(bench, "v1"), caches=CACHES)
    async with bench.started(*ON, "--host-capacity=64Mi"):
        await until_tier(bench, "v1", Tier.GPU)
        await bench.until(lambda: bench.cluster.in_memory, "the pages to be locked, too")
        devices[-1].foreign_bytes = 15 * MIB
        bench.cluster.nudge()
        told = await until_reason(bench, "v1", "GpuOutOfMemory")
        assert told.tier is Tier.HOST
