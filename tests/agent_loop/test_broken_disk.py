"""A disk that fails: one action rests and tells why; a dead or hung disk ends the Lease."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest

from fakes.fetch_world import safetensors_body
from modelcache_agent import agent, loop
from modelcache_agent.tiers import release, store_thread
from modelcache_agent.tiers.disk import DiskStore

MODEL = {"model.safetensors": safetensors_body(200_000), "config.json": b"{}"}
OTHER = {"model.safetensors": safetensors_body(200_000, seed=7)}


def failing(number):
    def fail(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    return fail


async def hold(bench, uid, bodies=MODEL):
    bench.offer(uid, bodies)
    bench.cluster.want(*bench.cluster.entries, bench.entry(uid))
    await bench.until_state(uid, "Cached")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(agent, "_SILENT_SECONDS", 1.0)
    return "--lease-interval=50ms"


async def assert_the_lease_runs_out(bench):
    async def is_still():
        before = bench.cluster.leases
        await asyncio.sleep(0.4)
        return bench.cluster.leases == before

    for _ in range(20):
        if await is_still():
            return
    pytest.fail("the Lease is renewed for ever")


async def test_a_dead_disk_ends_lease_and_labels_and_is_told(bench, impatient, monkeypatch):
    async with bench.started(impatient):
        await hold(bench, "v1")
        await bench.until(lambda: bench.cluster.labels, "the label")
        monkeypatch.setattr(DiskStore, "survey", failing(errno.EIO))
        bench.cluster.nudge()
        await bench.until_state("v1", "Failed", "StoreError")
        assert bench.cluster.labels == frozenset()
        assert "Input/output error" in bench.cluster.entry("v1").message
        await assert_the_lease_runs_out(bench)
        monkeypatch.undo()
        bench.cluster.nudge()
        await bench.until_state("v1", "Cached")
        await bench.until(lambda: bench.cluster.labels, "the label to come back")


async def test_a_hung_disk_ends_the_lease(bench, impatient, monkeypatch):
    """Also after calls gave up waiting: a turn that failed is no sign of life."""
    monkeypatch.setattr(store_thread, "_DEADLINE_SECONDS", 0.3)
    monkeypatch.setattr(loop, "_AFTER_BUG_SECONDS", 0.1)
    answers = threading.Event()
    survey = DiskStore.survey

    def hang(store):
        answers.wait(30)
        return survey(store)

    try:
        async with bench.started(impatient):
            await hold(bench, "v1")
            monkeypatch.setattr(DiskStore, "survey", hang)
            bench.cluster.nudge()
            await bench.until_state("v1", "Failed", "StoreError")
            assert "does not answer" in bench.cluster.entry("v1").message
            await assert_the_lease_runs_out(bench)
            answers.set()
            await bench.until_state("v1", "Cached")
            before = bench.cluster.leases
            await bench.until(lambda: bench.cluster.leases > before, "the Lease to be renewed")
    finally:
        answers.set()


async def test_an_action_that_fails_starves_no_other(bench, monkeypatch):
    async with bench.started():
        await hold(bench, "v1")
        monkeypatch.setattr(DiskStore, "remove", failing(errno.EROFS))
        bench.offer("v2", OTHER)
        bench.cluster.want(bench.entry("v2"))
        await bench.until_state("v2", "Cached")
        await bench.until(lambda: len(bench.cluster.labels) == 1, "the label")


async def test_a_disk_that_turned_read_only_keeps_what_it_holds(bench, monkeypatch):
    """Nothing can be removed or touched any more, but what is held can be read and is labelled."""
    async with bench.started():
        await hold(bench, "v1")
        (bench.root / "released" / "leftover").write_bytes(b"x" * 100)
        monkeypatch.setattr(release, "remove_anything", failing(errno.EROFS))
        monkeypatch.setattr(os, "utime", failing(errno.EROFS))
        monkeypatch.setattr(DiskStore, "drop_partial", failing(errno.EROFS))
        (bench.root / "partial" / "gone").mkdir()
        bench.cluster.labels = frozenset()
        with (bench.tree("v1") / "config.json").open("rb"):
            bench.offer("v2", OTHER)
            bench.cluster.want(bench.entry("v1"), bench.entry("v2"))
            await bench.until(lambda: bench.cluster.state("v2") is not None, "the status")
            await bench.until(
                lambda: bench.cluster.status.tiers[0].pending_release_bytes == 100,
                "what cannot be removed to be counted",
            )
        assert bench.cluster.state("v1") == ("Cached", "Cached")


async def test_a_content_that_cannot_be_hashed_rests_and_says_why(bench, monkeypatch):
    async with bench.started():
        await hold(bench, "v1")
    blob = next((bench.root / "blobs" / "sha256").iterdir())
    os.utime(blob, (1, 1))
    tries = []

    def fail(*_):
        tries.append(1)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("modelcache_agent.errands.hash_version", fail)
    bench.cluster.nudge()
    async with bench.started():
        await bench.until_state("v1", "Failed", "StoreError")
        for _ in range(5):
            bench.cluster.nudge()
            await asyncio.sleep(0.25)
        assert len(tries) == 1, "it is not hashed in a circle"
        assert "Too many open files" in bench.cluster.entry("v1").message
        assert bench.tree("v1").exists()
        assert bench.cluster.labels == frozenset()
