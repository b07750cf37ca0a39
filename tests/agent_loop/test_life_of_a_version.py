"""From an entry to a label and away again, with everything that may be away meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import aiohttp
import pytest

from fakes.fetch_world import random_body, safetensors_body
from fakes.range_server import Served
from fakes.store_world import read_tree
from modelcache_agent.decide import setbacks
from modelcache_agent.tiers.disk import DiskStore
from modelcache_api.wire import WireError

MODEL = {"model.safetensors": safetensors_body(9 << 20), "config.json": b"{}"}


def bodies(size=1 << 20, seed=0):
    return {"model.safetensors": safetensors_body(size, seed), "config.json": b"{}"}


async def test_fetch_propose_label_remove(bench):
    bench.offer("v1", MODEL)
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started():
        await bench.until_state("v1", "Cached")
        assert bench.cluster.labels == frozenset()
        entry = bench.entry("v1")
        bench.cluster.want(entry)
        await bench.until(lambda: bench.cluster.labels == {entry.label_key}, "the label")
        assert read_tree(bench.tree("v1")) == MODEL
        present_at_removal = []
        bench.cluster.on_labels = lambda _b, _a: present_at_removal.append(
            bench.tree("v1").exists()
        )
        bench.cluster.want()
        await bench.until(lambda: not bench.tree("v1").exists(), "the bytes to go")
        assert present_at_removal == [True], "C34 the label goes before the bytes"
        assert bench.cluster.labels == frozenset()


async def test_a_restart_does_nothing_at_all(bench):
    bench.offer("v1", MODEL)
    bench.cluster.want(bench.entry("v1"))
    async with bench.started():
        await bench.until(lambda: bench.cluster.labels, "the label")
        await bench.until_state("v1", "Cached")
    asked = len(bench.grants.requests) + len(bench.objects.requests)
    writes = len(bench.cluster.status_writes), len(bench.cluster.label_writes)
    bench.cluster.nudge()
    async with bench.started():
        await asyncio.sleep(0.6)
    assert len(bench.grants.requests) + len(bench.objects.requests) == asked
    assert (len(bench.cluster.status_writes), len(bench.cluster.label_writes)) == writes


async def test_status_moves_in_tenths_and_labels_once(bench):
    bench.offer("v1", bodies(64 << 20))
    bench.cluster.want(bench.entry("v1"))
    async with bench.started():
        await bench.until(lambda: bench.cluster.labels, "the label")
        await bench.until_state("v1", "Cached")
        await asyncio.sleep(0.5)
    assert len(bench.cluster.label_writes) == 1
    assert len(bench.cluster.status_writes) <= 14
    percents = [write.entries[0].progress_percent for write in bench.cluster.status_writes]
    assert percents == sorted(percents)
    assert {percent % 10 for percent in percents} == {0}


async def test_two_versions_of_one_content_share_the_bytes(bench):
    bench.offer("v1", MODEL, knows_content=True)
    bench.offer("v2", MODEL, knows_content=True)
    bench.cluster.want(bench.entry("v1"), bench.entry("v2"))
    async with bench.started():
        await bench.until(lambda: len(bench.cluster.labels) == 2, "both labels")
        bench.cluster.want(bench.entry("v2"))
        await bench.until(lambda: len(bench.cluster.labels) == 1, "one label")
        await asyncio.sleep(0.4)
        assert read_tree(bench.tree("v2")) == MODEL


async def test_files_of_another_version_are_not_fetched_again(bench):
    bench.offer("v1", MODEL)
    async with bench.started():
        bench.cluster.want(bench.entry("v1", known=False))
        await bench.until_state("v1", "Cached")
        bench.offer("v2", {**MODEL, "config.json": b"[1]"}, knows_content=True)
        bench.cluster.want(bench.entry("v1"), bench.entry("v2"))
        await bench.until_state("v2", "Cached")
        fetched = {path for path, _headers in bench.objects.requests if path.startswith("v2/")}
        assert fetched == {"v2/config.json"}


async def test_the_operator_is_away_and_comes_back(bench):
    bench.offer("v1", MODEL)
    bench.grants.failing_status = 503
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started():
        await bench.until_state("v1", "Failed", "OperatorUnreachable")
        assert len(bench.grants.requests) == 1, "no hot loop"
        assert bench.objects.requests == []


async def test_a_replica_that_does_not_know_the_entry_yet_is_asked_again_soon(bench):
    error = WireError(reason="NotKnownYet", message="no such entry on this node is known")
    version = bench.offer("v1", MODEL, error=error)
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started():
        await bench.until_state("v1", "Pending", "NotKnownYet")
        version.error = None
        await bench.until_state("v1", "Cached")
    assert len(set(bench.grants.callers)) > 1, "another replica had no chance to answer"


async def test_bytes_wait_for_an_operator_that_left_before_the_proposal(bench):
    version = bench.offer("v1", MODEL)
    answer = bench.grants.adopt
    bench.grants.adopt = lambda _proposal: 1 / 0
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started():
        await bench.until_state("v1", "Verifying", "OperatorUnreachable")
        fetched = len(bench.objects.requests)
    bench.grants.adopt = answer
    bench.cluster.nudge()
    async with bench.started():
        await bench.until_state("v1", "Cached")
    assert version.adopted == version.content_digest
    assert len(bench.objects.requests) == fetched, "the bytes were here"


async def test_another_content_was_adopted(bench):
    version = bench.offer("v1", MODEL)
    version.adopted = "sha256:" + "0" * 64
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started():
        await bench.until_state("v1", "Failed", "DigestMismatch")
        assert bench.cluster.labels == frozenset()
        entry = bench.entry("v1").model_copy(update={"content_digest": version.adopted})
        bench.cluster.want(entry)
        await bench.until(lambda: not bench.tree("v1").exists(), "the wrong bytes to go")
        assert bench.cluster.labels == frozenset()


async def test_damaged_bytes_of_a_pinned_version_are_dropped_and_fetched_again(bench, monkeypatch):
    monkeypatch.setattr(setbacks, "CONTENT_PAUSE_SECONDS", 1.0)
    version = bench.offer("v1", MODEL)
    version.adopted = version.content_digest
    path, right = "v1/config.json", bench.objects.objects["v1/config.json"]
    bench.objects.objects[path] = Served(right.size, right.etag, lambda _start, _end: b"[]")
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started():
        await bench.until_state("v1", "Failed", "DigestMismatch")
        versions = bench.root / "versions"
        await bench.until(lambda: not list(versions.iterdir()), "the wrong bytes to go")
        bench.objects.objects[path] = right
        await bench.until_state("v1", "Cached")
        assert read_tree(bench.tree("v1")) == MODEL
        proposals = [path for path, _ in bench.grants.requests if path.endswith("proposals")]
        assert len(proposals) <= 4


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"<!DOCTYPE html><html>login</html>", "HTML", id="K06 a login page"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\noid", "LFS", id="K05 a pointer"),
        pytest.param(random_body(132), "header", id="noise"),
    ],
)
async def test_C20_what_is_no_model_is_refused_and_leaves_nothing(bench, body, says):
    bench.offer("v1", {"model.safetensors": body, "config.json": b"{}"})
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started():
        await bench.until_state("v1", "Failed", "NotAModel")
        assert says in bench.cluster.entry("v1").message
        await bench.until(
            lambda: list((bench.root / "partial").iterdir()) == [], "the partial files to go"
        )
        asked = len(bench.objects.requests)
        await asyncio.sleep(1.0)
        assert len(bench.objects.requests) == asked, "not retried as if it were transient"
        assert not bench.tree("v1").exists()


async def test_the_operators_refusal_is_reported(bench):
    bench.offer("v1", MODEL).error = WireError(reason="SourceGone", message="deleted")
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started():
        await bench.until_state("v1", "Failed", "SourceGone")
        assert bench.cluster.entry("v1").message == "deleted"


async def test_an_entry_that_goes_during_its_transfer_leaves_nothing(bench):
    bench.offer("v1", bodies(200 << 20))
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started("--streams=1"):
        await bench.until(lambda: list((bench.root / "partial").iterdir()), "a partial file")
        bench.cluster.want()
        await bench.until(
            lambda: not list((bench.root / "partial").iterdir()), "nothing to be left"
        )
        await bench.until(
            lambda: bench.cluster.status.tiers[0].reserved_bytes == 0, "the reservation to end"
        )


def slow_down(bench, uid, path, seconds) -> None:
    """Each MiB of the object takes that long."""
    served = bench.objects.objects[f"{uid}/{path}"]

    def read(start, end):
        time.sleep(seconds * (end - start) / (1 << 20))
        return served.read(start, end)

    bench.objects.objects[f"{uid}/{path}"] = replace(served, read=read)


async def test_a_drained_agent_resumes(bench):
    version = bench.offer("v1", bodies(64 << 20))
    slow_down(bench, "v1", "model.safetensors", 0.08)
    bench.cluster.want(bench.entry("v1", known=False))
    async with bench.started("--streams=2"):
        await bench.until(
            lambda: (e := bench.cluster.entry("v1")) and e.progress_percent >= 30, "a third"
        )
        began = time.monotonic()
    assert time.monotonic() - began < 10
    is_there = bench.tree("v1").exists()
    assert not is_there
    fetched = len(bench.objects.requests)
    bench.offer("v1", version.bodies)
    bench.cluster.nudge()
    async with bench.started():
        await bench.until_state("v1", "Cached")
    is_equal = read_tree(bench.tree("v1")) == version.bodies
    assert is_equal
    again = [h["range"] for path, h in bench.objects.requests[fetched:] if "model" in path]
    spans = [span.removeprefix("bytes=").split("-") for span in again]
    asked = sum(int(end) + 1 - int(start) for start, end in spans)
    assert 0 < asked <= (64 - 16) << 20, "what was verified is not fetched again"


async def test_a_cache_node_of_another_node_is_not_ours(bench):
    bench.offer("v1", MODEL)
    bench.cluster.node_uid = "another"
    bench.cluster.want(bench.entry("v1"))
    async with bench.started():
        await asyncio.sleep(0.5)
    assert (bench.cluster.status_writes, bench.cluster.label_writes) == ([], [])
    assert bench.grants.requests == []


async def test_a_cache_node_that_vanishes_takes_nothing_with_it(bench):
    bench.offer("v1", MODEL)
    bench.cluster.want(bench.entry("v1"))
    async with bench.started():
        await bench.until(lambda: bench.cluster.labels, "the label")
        bench.cluster.vanish()
        await asyncio.sleep(0.5)
        assert bench.tree("v1").exists()
        assert len(bench.cluster.labels) == 1


async def test_a_bug_costs_one_entry_its_turn_and_not_the_agent(bench, monkeypatch):
    bench.offer("v1", MODEL)
    bench.offer("v2", {"model.safetensors": safetensors_body(1000, 3)})
    real = DiskStore.publish

    def publish(self, manifest, finished, origin):
        if origin.uid == "v1":
            raise RuntimeError("bug")
        return real(self, manifest, finished, origin)

    monkeypatch.setattr(DiskStore, "publish", publish)
    bench.cluster.want(bench.entry("v1"), bench.entry("v2"))
    async with bench.started():
        await bench.until_state("v1", "Failed", "StoreError")
        await bench.until_state("v2", "Cached")
        assert "RuntimeError" in bench.cluster.entry("v1").message


async def test_health_and_metrics_are_served(bench):
    port = find_free_port()
    bench.offer("v1", MODEL)
    bench.cluster.want(bench.entry("v1"), caches={"team-a/llama": "v1"})
    async with bench.started(f"--metrics-port={port}"), aiohttp.ClientSession() as session:
        await bench.until(lambda: bench.cluster.labels, "the label")
        for path, text in (("/healthz", "ok"), ("/readyz", "ok")):
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                assert (answer.status, (await answer.text()).strip()) == (200, text)
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            text = await answer.text()
        assert 'modelcache_agent_entries{state="Cached"} 1.0' in text
        source = bench.objects.url("").removesuffix("/")
        series = f'fetch_egress_bytes_total{{model_namespace="team-a",source="{source}"}}'
        counted = text.partition(f"{series} ")[2].partition("\n")[0]
        assert float(counted) == sum(map(len, MODEL.values()))


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
