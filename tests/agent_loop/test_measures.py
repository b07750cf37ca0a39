"""Hits, misses, loads, labels and evictions, measured by the whole agent."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes.fetch_world import safetensors_body
from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods, PodVolume
from modelcache_agent.decide.setbacks import FIRST_UNKNOWN_SECONDS
from modelcache_api.wire import WireError
from modelcache_testbed.folders import state_folder
from modelcache_testbed.ports import PortLedger

MIB = 1 << 20
PREFIX = "modelcache_agent_"


class Port:
    """A port that nobody else is given, and what the agent says there."""

    def __init__(self, number: int) -> None:
        self.number = number

    def read(self) -> dict[tuple, float]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.number}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        return {
            (sample.name.removeprefix(PREFIX), *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


async def read_once(port: Port, *series: str) -> dict[tuple, float]:
    """Everything, once this series counts one: pods are told before it is counted."""
    for _ in range(500):
        found = await asyncio.to_thread(port.read)
        if found.get(series) == 1:
            return found
        await asyncio.sleep(0.02)
    pytest.fail(f"{series} stays {found.get(series)}")


def shows(volume: PodVolume) -> bool:
    return volume.folder.status.exists() and volume.is_ready


@pytest.fixture
def port(tmp_path) -> Iterator[Port]:
    ledger = PortLedger(state_folder() / "ports.json")
    yield Port(ledger.reserve(["metrics"], tmp_path)["metrics"])
    ledger.release(tmp_path)


@pytest.fixture
def pods(bench, tmp_path) -> PlayedPods:
    return PlayedPods(bench.root, tmp_path / "kubelet")


async def test_a_pod_that_waits_is_a_miss_and_the_next_one_a_hit(bench, pods, port):
    body = safetensors_body(2 * MIB, 1)
    bench.offer("v1", {"model.safetensors": body})
    async with bench.started(f"--metrics-port={port.number}"):
        first = pods.add(Pod())
        bench.cluster.want(bench.entry("v1"), caches={"search/minilm": "v1"})
        await bench.until(lambda: shows(first), "the first pod's model")
        second = pods.add(Pod(uid="22222222-2222-2222-2222-222222222222"))
        await bench.until(lambda: shows(second), "the second pod's model")
        await read_once(port, "label_seconds_count")
        found = await read_once(port, "attaches_total", "disk", "hit")
    assert found["attaches_total", "disk", "miss"] == 1
    assert found["attached_bytes_total", "disk", "hit"] == len(body)
    assert found["attach_seconds_count", "miss"] == 1
    assert found["load_seconds_count", "disk", "origin"] == 1
    assert 0 <= found["label_seconds_sum",] < 30


async def test_a_load_takes_as_long_as_all_its_tries(bench, port):
    error = WireError(reason="NotKnownYet", message="no such entry on this node is known")
    version = bench.offer("v1", {"model.safetensors": safetensors_body(MIB, 1)}, error=error)
    async with bench.started(f"--metrics-port={port.number}"):
        bench.cluster.want(bench.entry("v1"))
        await bench.until_state("v1", "Pending", "NotKnownYet")
        version.error = None
        found = await read_once(port, "load_seconds_count", "disk", "origin")
    assert found["load_seconds_sum", "disk", "origin"] >= FIRST_UNKNOWN_SECONDS


async def test_a_restart_counts_no_attach_and_no_load_again(bench, pods, port):
    bench.offer("v1", {"model.safetensors": safetensors_body(MIB, 1)})
    async with bench.started():
        bench.cluster.want(bench.entry("v1"), caches={"search/minilm": "v1"})
        volume = pods.add(Pod())
        await bench.until(lambda: shows(volume), "the pod's model")
        await bench.until(lambda: bench.cluster.labels, "the label")
    async with bench.started(f"--metrics-port={port.number}"):
        bench.cluster.want(bench.entry("v1"), caches={"search/minilm": "v1"})
        found = await read_once(port, "node_labels")
    assert found["attaches_total", "disk", "miss"] == 0
    assert found["label_seconds_count",] == 0
    loads = [value for series, value in found.items() if series[0] == "load_seconds_count"]
    assert loads == [0] * len(loads)


async def test_what_gives_way_tells_tier_reason_and_age(bench, port):
    bench.capacity = 3 * MIB
    for seed, uid in enumerate(("old", "new")):
        bench.offer(uid, {"model.safetensors": safetensors_body(2 * MIB, seed)})
    async with bench.started(f"--metrics-port={port.number}"):
        old, new = bench.entry("old", evictable=True), bench.entry("new")
        bench.cluster.want(old)
        await bench.until_state("old", "Cached")
        bench.cluster.want(old, new)
        await bench.until_state("new", "Cached")
        found = await read_once(port, "evictions_total", "disk", "room")
    assert found["evictions_total", "disk", "pressure"] == 0
    assert found["eviction_age_seconds_count", "disk"] == 1
    assert 0 < found["eviction_age_seconds_sum", "disk"] < 60
