"""The host tier on real files of the real file system. What was learned by trial has a test."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from blake3 import blake3

from fakes.page_room import disk_reads, drop, in_pages, locked_bytes, reading, resident
from modelcache_agent.decide.ledger import Blob
from modelcache_agent.tiers.host.loading import (
    DamagedError,
    HeldByReadersError,
    LoadFile,
    StoppedError,
)
from modelcache_agent.tiers.host.record import LockRecord
from modelcache_agent.tiers.host.tier import HostTier
from modelcache_api.manifest import PIECE_BYTES

MIB = 1 << 20
SIZE = PIECE_BYTES + 3 * MIB + 1234


def never() -> bool:
    return False


@dataclass
class Room:
    """A folder of blobs and a tier over it."""

    root: Path
    boot_id: str = "boot-1"
    capacity: int = 1 << 30
    files: dict[str, LoadFile] = field(default_factory=dict)

    def add(self, name: str, size: int = SIZE, *, cached: bool = False) -> LoadFile:
        path = self.root / name
        body = os.urandom(size)
        path.write_bytes(body)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        if not cached:
            drop(path)
            assert resident(path) == 0
        pieces = tuple(
            blake3(body[at : at + PIECE_BYTES]).hexdigest() for at in range(0, size, PIECE_BYTES)
        )
        file = LoadFile(name, path, size, hashlib.sha256(body).hexdigest(), pieces)
        self.files[name] = file
        return file

    def tier(self, **changes) -> HostTier:
        record = LockRecord(self.root / "host.json", self.boot_id)
        return HostTier(self.capacity, record, **changes)


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


@pytest.mark.parametrize("populate", [True, False], ids=["populated", "Linux before 5.14"])
def test_a_content_is_read_once_locked_and_given_back(room, populate):
    file, tier, before = room.add("a"), room.tier(populate=populate), locked_bytes()
    began = disk_reads()
    assert tier.load("c1", [file], never) == SIZE
    assert disk_reads() - began >= SIZE
    assert locked_bytes() - before == in_pages(SIZE)
    drop(file.path)
    assert resident(file.path) == in_pages(SIZE)
    assert tier.look().contents == {"c1": frozenset({Blob("a", SIZE)})}
    tier.unload("c1")
    assert (resident(file.path), tier.look().lingering_bytes, locked_bytes()) == (0, 0, before)


def test_readers_of_a_locked_content_read_no_disk(room):
    file, tier = room.add("a"), room.tier()
    tier.load("c1", [file], never)
    program = """
        import sys
        def io():
            return int(open("/proc/self/io").read().split("read_bytes: ")[1].split()[0])
        began = io()
        open(sys.argv[1], "rb").read()
        print(io() - began)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), file.path]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"0\n"
    tier.close()


def test_what_was_just_written_by_us_is_not_read_again(room):
    file, tier = room.add("a", cached=True), room.tier()
    tier.note_written(["a"])
    began = disk_reads()
    tier.load("c1", [file], never)
    assert disk_reads() == began
    tier.close()


def test_pages_that_others_may_be_charged_for_are_dropped_first(room):
    file, tier = room.add("a", cached=True), room.tier()
    tier.note_written(["a"])
    tier.note_shown(frozenset({"a"}))
    began = disk_reads()
    tier.load("c1", [file], never)
    assert disk_reads() - began >= SIZE
    tier.close()


def test_while_a_reader_holds_pages_nothing_is_locked_and_nothing_is_booked(room):
    file, tier, before = room.add("a"), room.tier(), locked_bytes()
    with reading(file.path) as process:
        with pytest.raises(HeldByReadersError) as caught:
            tier.load("c1", [file], never)
        assert caught.value.held_bytes == in_pages(SIZE)
        seen = tier.look()
        assert (seen.contents, seen.lingering_bytes, locked_bytes()) == ({}, 0, before)
        assert process.poll() is None
    tier.load("c1", [file], never)
    tier.close()


def test_C59_what_readers_map_lingers_until_they_close_it(room):
    file, tier = room.add("a"), room.tier()
    tier.load("c1", [file], never)
    with reading(file.path) as process:
        tier.unload("c1")
        assert tier.look().lingering_bytes == SIZE
        assert tier.look().contents == {}
        assert process.poll() is None
    assert tier.look().lingering_bytes == 0
    assert resident(file.path) == 0


def test_a_lingering_content_is_locked_again_only_after_its_readers(room):
    file, tier = room.add("a"), room.tier()
    tier.load("c1", [file], never)
    with reading(file.path):
        tier.unload("c1")
        with pytest.raises(HeldByReadersError):
            tier.load("c1", [file], never)
        assert tier.look().lingering_bytes == SIZE
    tier.load("c1", [file], never)
    assert tier.look().lingering_bytes == 0
    tier.close()


def test_a_shared_blob_is_locked_once_and_stays_for_the_other(room):
    shared, own, other = room.add("s"), room.add("a", MIB), room.add("b", MIB)
    tier, before = room.tier(), locked_bytes()
    assert tier.load("c1", [shared, own], never) == SIZE + MIB
    assert tier.load("c2", [shared, other], never) == MIB
    tier.unload("c1")
    assert (resident(own.path), resident(shared.path)) == (0, in_pages(SIZE))
    tier.unload("c2")
    assert (resident(shared.path), locked_bytes()) == (0, before)


@pytest.mark.parametrize("knows_pieces", [True, False])
def test_C22_damage_is_found_while_loading_and_nothing_stays_locked(room, knows_pieces):
    file, tier, before = room.add("a"), room.tier(), locked_bytes()
    with file.path.open("r+b") as body:
        body.seek(PIECE_BYTES + 7)
        body.write(b"damage")
    drop(file.path)
    if not knows_pieces:
        file = LoadFile(file.blob, file.path, file.size_bytes, file.sha256, ())
    with pytest.raises(DamagedError) as caught:
        tier.load("c1", [file], never)
    assert caught.value.piece == (1 if knows_pieces else 0)
    assert (tier.look().contents, locked_bytes()) == ({}, before)


def test_a_file_that_shrank_is_damage_and_ends_no_process(room):
    file, tier = room.add("a"), room.tier()
    os.truncate(file.path, PIECE_BYTES)
    with pytest.raises(DamagedError):
        tier.load("c1", [file], never)
    assert tier.look().contents == {}


def test_a_load_that_nobody_wants_any_more_stops_and_gives_everything_back(room):
    file, tier, before = room.add("a"), room.tier(threads=1), locked_bytes()
    answers = iter([False, True])
    with pytest.raises(StoppedError):
        tier.load("c1", [file], lambda: next(answers))
    assert (tier.look().contents, locked_bytes(), resident(file.path)) == ({}, before, 0)


def test_who_else_has_a_locked_file_open_is_known(room):
    file, tier = room.add("a"), room.tier()
    assert tier.is_open_elsewhere("a") is None
    tier.load("c1", [file], never)
    assert tier.is_open_elsewhere("a") is False
    with reading(file.path, maps=False):
        assert tier.is_open_elsewhere("a") is True
    assert tier.is_open_elsewhere("a") is False
    tier.close()


def test_a_restart_locks_again_at_once_and_reads_no_disk(room):
    file, first = room.add("a"), room.tier()
    first.load("c1", [file], never)
    with reading(file.path):
        first.close()
        second, began = room.tier(), disk_reads()
        assert second.restore(lambda _digest: [file]) == SIZE
        assert disk_reads() == began
    assert set(second.look().contents) == {"c1"}
    second.close()


def test_a_restart_locks_nothing_that_was_not_recorded(room):
    file, tier = room.add("a", cached=True), room.tier()
    assert tier.restore(lambda _digest: [file]) == 0
    with reading(file.path), pytest.raises(HeldByReadersError):
        tier.load("c1", [file], never)


def test_what_left_the_cache_during_a_restart_is_read_by_a_load_beside_its_readers(room):
    file, first = room.add("a"), room.tier()
    first.load("c1", [file], never)
    first.close()
    drop(file.path)
    with reading(file.path):
        drop(file.path)
        second = room.tier()
        second.restore(lambda _digest: [file])
        second.load("c1", [file], never)
        assert set(second.look().contents) == {"c1"}
    second.close()


def test_after_a_boot_of_the_node_the_record_says_nothing(room):
    file, first = room.add("a"), room.tier()
    first.load("c1", [file], never)
    first.close()
    room.boot_id = "boot-2"
    assert room.tier().restore(lambda _digest: [file]) == 0


def test_after_a_restart_the_ledger_keeps_to_the_capacity(room):
    files = {name: room.add(name, MIB) for name in "abc"}
    first = room.tier()
    for name, file in files.items():
        first.load(name, [file], never)
    first.close()
    room.capacity = 2 * MIB
    second = room.tier()
    assert second.restore(lambda digest: [files[digest]]) == 2 * MIB
    assert set(second.look().contents) == {"a", "b"}
    second.close()


def test_C16_on_a_full_disk_memory_is_given_back_and_the_next_agent_locks_nothing(
    room, monkeypatch
):
    file, tier, before = room.add("a"), room.tier(), locked_bytes()
    tier.load("c1", [file], never)

    def refuse(_path, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("modelcache_agent.tiers.host.record.write_atomically", refuse)
    tier.unload("c1")
    assert locked_bytes() == before
    assert room.tier().record.load() == ()
    with pytest.raises(OSError, match="No space"):
        tier.load("c1", [file], never)
    assert (tier.look().contents, locked_bytes()) == ({}, before)


@pytest.mark.parametrize("text", ["", "[]", '{"bootId": "boot-1"}', "\x00"])
def test_a_damaged_record_counts_as_empty(room, text):
    (room.root / "host.json").write_text(text)
    assert room.tier().record.load() == ()


def test_an_empty_file_of_a_model_is_no_obstacle(room):
    empty, file, tier = room.add("empty", 0), room.add("a", MIB), room.tier()
    assert tier.load("c1", [empty, file], never) == MIB
    tier.unload("c1")
    assert tier.look().contents == {}
