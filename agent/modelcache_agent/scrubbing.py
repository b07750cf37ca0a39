"""Reads published files again, at a bounded rate, and tells the store what is wrong with them.

The plan says which; this only reads. It stops between two reads when it is told to, and the book
remembers how far it came.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.fetch.clock import Clock, SystemClock
from modelcache_agent.fetch.throttle import Throttle
from modelcache_agent.ports.metrics import Metrics
from modelcache_agent.tiers.catalog import StoredVersion
from modelcache_agent.tiers.checking import (
    find_reading,
    heal_records,
    judge,
    make_reading,
    suspect,
)
from modelcache_agent.tiers.damage import note_sound
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.reading import Reading, Take, read_slice, read_whole
from modelcache_agent.tiers.scrub_book import Cursor
from modelcache_agent.tiers.store_thread import StoreThread

_log = logging.getLogger(__name__)
# Between two slices the book may be written: this is the least that a kill costs.
_SLICE_PIECES: Final = 16


class Pacer:
    """Lets so many bytes a second through."""

    def __init__(self, bytes_per_second: int, clock: Clock | None = None) -> None:
        self._throttle = Throttle(Bandwidth(bytes_per_second), clock or SystemClock())

    def make_take(self, must_stop: Callable[[], bool]) -> Take:
        """Waits for tokens before each read, until it is to stop."""

        def take(wanted: int) -> bool:
            while wanted > 0:
                taken = self._throttle.take(wanted, must_stop)
                if taken == 0:
                    return False
                wanted -= taken
            return not must_stop()

        return take


@dataclass(frozen=True, slots=True)
class Scrubber:
    """One call of `scrub` at a time."""

    store: DiskStore
    thread: StoreThread
    pacer: Pacer
    metrics: Metrics
    wake: Callable[[], None]

    async def scrub(
        self, blobs: Sequence[str], must_pause: Callable[[], bool], must_end: Callable[[], bool]
    ) -> None:
        """Check the files in this order until one of both says stop.

        A file that is suspected is judged even while the others pause: its versions are out of use.

        Raises:
            OSError: a file could not be read for another reason than its bytes.
        """
        for blob in blobs:
            found = await self.thread.call(find_reading, self.store, blob)
            if found is None:
                self.wake()
                continue
            reading, first_piece = found
            is_suspected = blob in self.store.scrub_book.damaged
            if not is_suspected and reading.has_pieces:
                is_suspected = await self._check(reading, first_piece, must_pause)
            elif not is_suspected:
                await self._judge(reading, must_pause)
            if is_suspected:
                await self._judge(reading, must_end)
            if must_pause() or must_end():
                break
        await self.thread.call(self.store.scrub_book.save, is_urgent=must_end())

    async def _check(
        self, reading: Reading, first_piece: int, must_stop: Callable[[], bool]
    ) -> bool:
        """Compare pieces; True if one differs, and then no version with it is verified any more."""
        take, piece = self.pacer.make_take(must_stop), first_piece
        book = self.store.scrub_book
        while piece < len(reading.pieces):
            seen = await asyncio.to_thread(read_slice, reading, piece, _SLICE_PIECES, take)
            self.metrics.count_scrubbed(seen.bytes_read)
            piece = seen.next_piece
            if seen.bad_piece is not None:
                is_here = await self.thread.call(suspect, self.store, reading, seen.bad_piece)
                self.wake()
                return is_here
            if piece < len(reading.pieces):
                cursor = Cursor(reading.blob, reading.inode, reading.mtime_ns, piece)
                await self.thread.call(book.note_progress, cursor)
            if seen.was_stopped:
                return False
        await self.thread.call(note_sound, self.store, reading.blob)
        return False

    async def _judge(self, reading: Reading, must_stop: Callable[[], bool]) -> None:
        """Read all of the file and decide; if it is sound, its records have to agree with it."""
        pieces = await self._hash(reading, must_stop)
        if pieces is None:
            return
        lost = await self.thread.call(heal_records, self.store, reading.blob, pieces)
        for version in lost:
            await self._rebuild_record(version, {reading.blob: pieces}, must_stop)

    async def _rebuild_record(
        self,
        version: StoredVersion,
        pieces: dict[str, tuple[str, ...]],
        must_stop: Callable[[], bool],
    ) -> None:
        """A record that cannot be read would cost the next process the version."""
        for file in version.files:
            if file.blob not in pieces:
                found = await self._hash(make_reading(self.store, file, ()), must_stop)
                if found is None:
                    return
                pieces[file.blob] = found
        await self.thread.call(self.store.rewrite_pieces, version, pieces)
        _log.warning("version=%s its record was damaged and is written anew", version.digest)

    async def _hash(
        self, reading: Reading, must_stop: Callable[[], bool]
    ) -> tuple[str, ...] | None:
        """The pieces of a sound file; None if it is damaged, changed, or the reading was ended."""
        whole = await asyncio.to_thread(read_whole, reading, self.pacer.make_take(must_stop))
        self.metrics.count_scrubbed(whole.bytes_read)
        if whole.was_stopped:
            return None
        judgement = await self.thread.call(judge, self.store, reading, whole)
        self.metrics.count_damaged(judgement.damaged_pieces)
        self.wake()
        if not judgement.is_sound:
            return None
        return tuple(piece for piece in whole.pieces if piece is not None)
