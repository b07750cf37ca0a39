"""Published files are read again: what is wrong is found and told, and nothing else is."""

from __future__ import annotations

import errno
import json
import os
import random
import time
from contextlib import asynccontextmanager

import pytest

from fakes.fetch_world import LeapingClock
from fakes.store_world import (
    NODE_UID,
    find_held,
    flip_bits,
    make_manifest,
    opened,
    origin,
    publish,
    put_partials,
    read_tree,
    tree_of,
)
from modelcache_agent.adapters.prometheus import PrometheusMetrics
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.decide.scrub import Stage
from modelcache_agent.fetch.counters import FetchCounters
from modelcache_agent.peers.shelf import Shelf
from modelcache_agent.scrubbing import Pacer, Scrubber
from modelcache_agent.tiers import reading, scrub_book
from modelcache_agent.tiers.checking import find_reading
from modelcache_agent.tiers.damage import isolate
from modelcache_agent.tiers.recovery import open_store
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_api.manifest import PIECE_BYTES

GIB = 1 << 30
BODIES = {
    "model.safetensors": random.Random(1).randbytes(2 * PIECE_BYTES + 4097),
    "config.json": b"{}",
    "empty.txt": b"",
}
SIBLING = {"model.safetensors": BODIES["model.safetensors"], "config.json": b'{"v": 2}'}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def metrics():
    return PrometheusMetrics(FetchCounters)


def count_of(metrics, name) -> int:
    lines = metrics.render().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith(name))))


@asynccontextmanager
async def scrubbing(store, metrics, rate=GIB, clock=None):
    thread = StoreThread()
    scrubber = Scrubber(store, thread, Pacer(rate, clock), metrics, lambda: None)

    async def scrub(*blobs, pauses=lambda: False, ends=lambda: False):
        names = blobs or sorted(store.catalog.blob_names)
        await scrubber.scrub(names, pauses, ends)

    try:
        yield scrub
    finally:
        await thread.close(5.0)


def blob_of(store, digest, path="model.safetensors"):
    stored = store.catalog.get(digest)
    return store.blobs.path(next(f for f in stored.files if f.content.path == path))


def ages(store):
    return {c.blob: c.age_seconds for c in store.survey().checkups}


async def test_sound_files_are_read_in_whole_and_noted(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        async with scrubbing(store, metrics) as scrub:
            await scrub()
        assert find_held(store, digest).is_verified
        total = sum(len(body) for body in BODIES.values())
        assert count_of(metrics, "modelcache_agent_scrubbed_bytes_total") == total
        assert count_of(metrics, "modelcache_agent_damaged_pieces_total") == 0


async def test_C22_all_damaged_pieces_are_named_and_the_other_nodes_are_not_served(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        source = origin("v1")
        blob = blob_of(store, digest)
        flip_bits(blob, 5, 2 * PIECE_BYTES + 4096)
        async with scrubbing(store, metrics) as scrub:
            await scrub()
        held = find_held(store, digest)
        assert not held.is_verified
        assert [(d.path, d.pieces, d.stage) for d in held.damage] == [
            ("model.safetensors", (0, 2), Stage.CONFIRMED)
        ]
        assert count_of(metrics, "modelcache_agent_damaged_pieces_total") == 2
        assert blob.exists(), "it leaves its place only when it is told to"
        assert Shelf(store, NoEngine()).verified_bytes(source.uid, source.source_digest) is None


class NoEngine:
    def verified_bytes(self, _uid):
        return None


async def test_C22_bytes_that_the_disk_cannot_read_are_damaged(root, metrics, monkeypatch):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        preadv = os.preadv

        def fail(fd, views, offset):
            if PIECE_BYTES <= offset < 2 * PIECE_BYTES:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return preadv(fd, views, offset)

        monkeypatch.setattr(reading.os, "preadv", fail)
        async with scrubbing(store, metrics) as scrub:
            await scrub()
        assert [d.pieces for d in find_held(store, digest).damage] == [(1,)]


async def test_an_error_that_says_nothing_of_the_bytes_is_no_damage(root, metrics, monkeypatch):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)

        def fail(*_):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(reading, "open_for_reading", fail)
        async with scrubbing(store, metrics) as scrub:
            with pytest.raises(OSError, match="Too many open files"):
                await scrub()
        assert find_held(store, digest).is_verified


async def test_where_there_are_no_direct_reads_the_same_is_found(root, metrics, monkeypatch):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        preadv, opening = os.preadv, reading.open_for_reading

        def refuse(fd, views, offset):
            if refuse.is_direct:
                refuse.is_direct = False
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return preadv(fd, views, offset)

        def open_direct(location):
            refuse.is_direct = True
            return opening(location)[0], True

        monkeypatch.setattr(reading, "open_for_reading", open_direct)
        monkeypatch.setattr(reading.os, "preadv", refuse)
        flip_bits(blob_of(store, digest), PIECE_BYTES)
        async with scrubbing(store, metrics) as scrub:
            await scrub()
        assert [d.pieces for d in find_held(store, digest).damage] == [(1,)]


def is_cached(path, offset) -> bool:
    """Whether the page is in memory; asking does not bring it there."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(4096)], offset, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            return False


async def test_the_page_cache_of_readers_is_left_as_it_is(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        blob = blob_of(store, digest)
        fd, is_direct = reading.open_for_reading(blob)
        assert is_direct, "the tests' folder has direct reads"
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        with blob.open("rb") as reader:
            os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            reader.read(4096)
        async with scrubbing(store, metrics) as scrub:
            await scrub(blob.name)
        assert find_held(store, digest).is_verified
        assert is_cached(blob, 0), "what a reader has read stays"
        assert not is_cached(blob, PIECE_BYTES), "and nothing comes in"


def edit_record(root, digest, edit):
    path = root / "records" / f"{digest.removeprefix('sha256:')}.json"
    document = json.loads(path.read_bytes())
    edit(document)
    path.write_text(json.dumps(document))


async def test_a_record_whose_pieces_are_wrong_is_written_anew(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        before = store.load_record(digest)

        def spoil(document):
            row = next(r for r in document["files"] if r["path"] == "model.safetensors")
            row["pieces"][1] = "0" * 64

        edit_record(root, digest, spoil)
        async with scrubbing(store, metrics) as scrub:
            await scrub()
        assert find_held(store, digest).is_verified
        assert store.load_record(digest) == before
        assert list((root / "quarantine").iterdir()) == []


async def test_a_record_that_cannot_be_read_is_made_of_the_files(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        before = store.load_record(digest)
        (root / "records" / f"{digest.removeprefix('sha256:')}.json").write_bytes(b'{"format')
        async with scrubbing(store, metrics) as scrub:
            await scrub(blob_of(store, digest).name)
        assert store.load_record(digest) == before
    with opened(root) as store:
        assert find_held(store, digest).is_verified


async def test_a_file_that_does_not_look_as_recorded_is_hashed_as_after_a_restart(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        os.utime(blob_of(store, digest), (1, 1))
        async with scrubbing(store, metrics) as scrub:
            await scrub()
        held = find_held(store, digest)
        assert (held.is_verified, held.damage) == (False, ())


async def break_and_isolate(store, metrics, digest):
    blob = blob_of(store, digest)
    flip_bits(blob, 5)
    async with scrubbing(store, metrics) as scrub:
        await scrub(blob.name)
    isolate(store, blob.name)
    return blob


async def test_C22_quarantine_keeps_records_other_files_and_open_readers(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        other = publish(store, "v2", SIBLING)
        with (tree_of(root, digest) / "model.safetensors").open("rb") as reader:
            blob = await break_and_isolate(store, metrics, digest)
            assert not blob.exists()
            assert [path.name for path in (root / "quarantine").iterdir()] == [blob.name]
            assert not tree_of(root, digest).exists()
            assert reader.read(4) == BODIES["model.safetensors"][:4]
        for version in (digest, other):
            assert [d.stage for d in find_held(store, version).damage] == [Stage.QUARANTINED]
        assert blob_of(store, digest, "config.json").exists()
    with opened(root) as store:
        assert [d.stage for d in find_held(store, digest).damage] == [Stage.QUARANTINED]
        assert blob_of(store, digest, "config.json").exists()


async def test_C22_a_repair_mends_all_versions_keeps_their_origins_and_is_read_back(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        store.add_origin(digest, origin("twin"))
        other = publish(store, "v2", SIBLING)
        blob = await break_and_isolate(store, metrics, digest)
        path = "model.safetensors"
        finished = put_partials(root, "v1", {path: BODIES[path]})
        store.publish(make_manifest(BODIES), finished, origin("v1"))
        assert read_tree(tree_of(root, digest)) == BODIES
        assert read_tree(tree_of(root, other)) == SIBLING
        assert {o.uid for o in find_held(store, digest).origins} == {"v1", "twin"}
        assert {c.blob for c in store.survey().checkups if c.was_repaired} == {blob.name}
        flip_bits(blob_of(store, digest), 9)
        async with scrubbing(store, metrics) as scrub:
            await scrub(blob.name)
        assert [d.repairs for d in find_held(store, digest).damage] == [1]


async def test_C22_a_damaged_file_that_still_lies_there_is_never_published_again(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        flip_bits(blob_of(store, digest), 5)
        async with scrubbing(store, metrics) as scrub:
            await scrub()
        with pytest.raises(Exception, match="quarantine first"):
            publish(store, "v2", SIBLING)


@pytest.mark.parametrize("stage", [Stage.FOUND, Stage.CONFIRMED])
async def test_C22_a_restart_remembers_damage_that_looks_as_recorded(root, metrics, stage):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        flip_bits(blob_of(store, digest), 5)
        async with scrubbing(store, metrics) as scrub:
            # Ended between finding a piece and judging the file, or after that.
            await scrub(ends=lambda: stage is Stage.FOUND and bool(store.scrub_book.damaged))
    with opened(root) as store:
        held = find_held(store, digest)
        assert [d.stage for d in held.damage] == [stage]
        assert not held.is_verified


async def test_C22_a_kill_between_the_move_and_the_word_on_it_costs_nothing(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        blob = blob_of(store, digest)
        flip_bits(blob, 5)
        async with scrubbing(store, metrics) as scrub:
            await scrub()
    blob.rename(root / "quarantine" / blob.name)
    with opened(root) as store:
        held = find_held(store, digest)
        assert [d.stage for d in held.damage] == [Stage.QUARANTINED]
        assert not held.is_verified
        assert blob_of(store, digest, "config.json").exists()


async def test_C22_a_kill_between_the_repair_and_the_word_on_it_costs_nothing(root, metrics):
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        await break_and_isolate(store, metrics, digest)
        book = (root / "scrub.json").read_bytes()
        publish(store, bodies=BODIES)
    (root / "scrub.json").write_bytes(book)
    with opened(root) as store:
        held = find_held(store, digest)
        assert (held.is_verified, held.damage) == (True, ())


async def test_C22_a_check_goes_on_where_it_was_interrupted(root, metrics, monkeypatch):
    monkeypatch.setattr("modelcache_agent.scrubbing._SLICE_PIECES", 1)
    with opened(root) as store:
        digest = publish(store, bodies=BODIES)
        blob = blob_of(store, digest)

        def reads_enough():
            cursor = store.scrub_book.cursor
            return cursor is not None and cursor.pieces >= 1

        async with scrubbing(store, metrics) as scrub:
            await scrub(blob.name, pauses=reads_enough, ends=reads_enough)
        assert find_reading(store, blob.name)[1] == 1
    with opened(root) as store:
        assert find_reading(store, blob.name)[1] == 1
        flip_bits(blob, 0)
        os.utime(blob, (5, 5))
        assert find_reading(store, blob.name) is None, "another file is read from its beginning"


def test_C22_at_most_the_rate_is_read():
    clock, cap = LeapingClock(), Bandwidth(4 << 20)
    take = Pacer(cap.bytes_per_second, clock).make_take(lambda: False)
    began, read = clock.monotonic(), 0
    while read < 64 << 20:
        assert take(1 << 20)
        read += 1 << 20
        allowed = (clock.monotonic() - began) * cap.bytes_per_second + cap.burst_bytes
        assert read <= allowed + 1


def test_a_wait_for_the_rate_ends_when_it_is_told_to():
    stopped = []
    take = Pacer(1 << 20, LeapingClock()).make_take(lambda: bool(stopped))
    assert take(1 << 20)
    stopped.append(True)
    assert not take(1 << 20)


class Clocks:
    def __init__(self):
        self.wall, self.up = 1_700_000_000.0, 500.0

    def open(self, root):
        return open_store(
            root, node_uid=NODE_UID, clock=lambda: self.wall, monotonic=lambda: self.up
        )


def test_C62_ages_are_monotonic_and_times_in_the_future_count_as_now(root, monkeypatch, caplog):
    monkeypatch.setattr(scrub_book, "_SAVE_SECONDS", 0.0)
    root.mkdir()
    clocks = Clocks()
    opened_first = clocks.open(root)
    store = opened_first.store
    digest = publish(store, bodies={"config.json": b"{}"})
    name = blob_of(store, digest, "config.json").name
    assert ages(store) == {name: 0.0}
    clocks.wall += 2 * 86400
    clocks.up += 60
    assert ages(store) == {name: 60.0}, "a step of the wall clock ages nothing"
    store.scrub_book.note_sound(name)
    opened_first.close()
    clocks.wall -= 3 * 86400
    clocks.up = 10.0
    reopened = clocks.open(root)
    assert ages(reopened.store) == {name: 0.0}
    assert "in the future" in caplog.text
    reopened.close()
    clocks.wall += 4 * 86400
    later = clocks.open(root)
    assert ages(later.store) == {name: 86400.0}
    later.close()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"checked": 5}', b'{"checked": {"x": 1}}', b"\xff"]
)
def test_a_damaged_book_counts_as_empty_and_records_say_the_age(root, content):
    hour_ago = time.time() - 3600
    with opened(root, clock=lambda: hour_ago) as store:
        digest = publish(store, bodies=BODIES)
    (root / "scrub.json").write_bytes(content)
    with opened(root) as store:
        assert find_held(store, digest).is_verified
        assert all(3590 < age < 3700 for age in ages(store).values())
