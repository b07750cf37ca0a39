"""The sound pieces of a quarantined file become the beginning of its repair.

They are copied, because what is in quarantine stays as it is; only what is damaged is fetched.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from modelcache_agent.adopt.copying import clone
from modelcache_agent.decide.transfer_plan import count_pieces, piece_length
from modelcache_agent.fetch.journal import JournalHeader
from modelcache_agent.fetch.partial import PARTIAL_SUFFIX, file_stem
from modelcache_agent.head_start import give_head_start
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.reading import BYTES_ARE_LOST
from modelcache_api.manifest import PIECE_BYTES, SourceFile
from modelcache_api.v1alpha1.cache_node import EntrySpec


@dataclass(frozen=True, slots=True)
class Salvage:
    """One quarantined file, and the blake3 of those of its pieces that are not known to be bad."""

    quarantined: Path
    partial: Path
    header: JournalHeader
    pieces: dict[int, bytes]

    def run(self, must_stop: Callable[[], bool]) -> None:
        """Copy the pieces. What cannot be copied is fetched, so nothing here is an error."""
        give_head_start(
            self.partial,
            self.header,
            lambda target: self._copy(target, must_stop),
            must_stop,
            "salvaged",
        )

    def _copy(self, target: Path, must_stop: Callable[[], bool]) -> dict[int, bytes]:
        source = os.open(self.quarantined, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            own = os.open(target, flags, 0o600)
            try:
                if clone(source, own):
                    return self.pieces
                return self._copy_pieces(source, own, must_stop)
            finally:
                os.close(own)
        finally:
            os.close(source)

    def _copy_pieces(
        self, source: int, own: int, must_stop: Callable[[], bool]
    ) -> dict[int, bytes]:
        os.posix_fallocate(own, 0, self.header.size_bytes)
        buffer = memoryview(bytearray(PIECE_BYTES))
        copied = {}
        for piece, digest in self.pieces.items():
            if must_stop():
                break
            view = buffer[: piece_length(self.header.size_bytes, piece)]
            if _copy_piece(source, own, piece * PIECE_BYTES, view):
                copied[piece] = digest
        os.fsync(own)
        # The engine reads the device when it proves the pieces; the cache is for others.
        os.posix_fadvise(own, 0, 0, os.POSIX_FADV_DONTNEED)
        return copied


def _copy_piece(source: int, own: int, offset: int, view: memoryview) -> bool:
    """False if the source cannot be read there."""
    try:
        count = os.preadv(source, [view], offset)
    except OSError as error:
        if error.errno not in BYTES_ARE_LOST:
            raise
        return False
    os.posix_fadvise(source, offset, len(view), os.POSIX_FADV_DONTNEED)
    done = 0
    while done < count:
        done += os.pwrite(own, view[done:count], offset + done)
    return count == len(view)


def find_salvage(
    store: DiskStore, entry: EntrySpec, missing: Sequence[SourceFile]
) -> tuple[Salvage, ...]:
    """The quarantined files of the entry's content that no partial file stands for yet."""
    stored = next((v for v in store.catalog if v.damage and v.digest == entry.content_digest), None)
    if stored is None:
        return ()
    try:
        contents = {file.content.path: file for file in store.load_record(stored.digest).files}
    except (OSError, ValueError):
        return ()
    damaged = {damage.blob: damage for damage in stored.damage}
    found = []
    for source in missing:
        file = contents.get(source.path)
        damage = None if file is None else damaged.get(file.blob)
        if file is None or damage is None or not damage.pieces:
            continue
        stem = store.layout.partial / entry.uid / file_stem(source.path)
        quarantined, partial = store.quarantine.find(damage.inode), stem.with_suffix(PARTIAL_SUFFIX)
        pieces = file.content.pieces
        if (
            quarantined is None
            or partial.exists()
            or len(pieces) != count_pieces(source.size_bytes)
        ):
            continue
        sound = {n: bytes.fromhex(p) for n, p in enumerate(pieces) if n not in damage.pieces}
        header = JournalHeader.of(entry.uid, entry.source_digest, source)
        found.append(Salvage(quarantined, partial, header, sound))
    return tuple(found)


async def finish_in_thread(work: Callable[[Callable[[], bool]], None]) -> None:
    """Run the work in a thread; if we are cancelled, it is told to stop, and has, when we end."""
    must_stop = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(work, must_stop.is_set))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        must_stop.set()
        await asyncio.wait({running})
        raise
