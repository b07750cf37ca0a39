"""Locked contents of this process, with every byte booked.

A blob that several contents name is locked once. Methods block and may be called by any thread,
`load` by one at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from modelcache_agent.decide.ledger import Blob
from modelcache_agent.tiers.host.loading import (
    LOAD_THREADS,
    DamagedError,
    HeldByReadersError,
    LoadFile,
    lock_pieces,
)
from modelcache_agent.tiers.host.pages import FileMap, count_resident_bytes, drop_cached
from modelcache_agent.tiers.host.record import LockRecord
from modelcache_agent.tiers.usage import has_other_users
from modelcache_api.manifest import PIECE_BYTES

_log = logging.getLogger(__name__)
# Pages that were just used leave the cache a moment after they were dropped.
_SETTLE_SECONDS: Final = 0.5
_SETTLE_STEP_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class HostSurvey:
    """What is locked now, by content's digest, and bytes that were let go and are still mapped."""

    contents: Mapping[str, frozenset[Blob]]
    lingering_bytes: int


@dataclass(slots=True)
class HostTier:
    """`capacity_bytes` bounds what `restore` locks; everything else is planned."""

    capacity_bytes: int
    record: LockRecord
    threads: int = LOAD_THREADS
    populate: bool = True
    _maps: dict[str, FileMap] = field(default_factory=dict)
    _contents: dict[str, frozenset[Blob]] = field(default_factory=dict)
    _lingering: dict[str, FileMap] = field(default_factory=dict)
    _fresh: set[str] = field(default_factory=set)
    """Blobs that we wrote through the cache, verified, and that no pod could read since."""
    _recorded: set[str] = field(default_factory=set)
    """Blobs that an earlier agent had locked: what is cached of them is not charged to readers."""
    _pending: frozenset[str] = frozenset()
    """Blobs of the content that is being loaded."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def look(self) -> HostSurvey:
        """What is locked; also lets go of what readers have closed meanwhile."""
        with self._lock:
            lingering = sum(self._measure(name) for name in tuple(self._lingering))
            return HostSurvey(dict(self._contents), lingering)

    def note_written(self, blobs: Sequence[str]) -> None:
        """These were just written through the page cache by us and verified."""
        with self._lock:
            self._fresh |= set(blobs)

    def note_shown(self, blobs: frozenset[str]) -> None:
        """Pods can read these: whoever reads a page first from now on is charged for it."""
        with self._lock:
            self._fresh -= blobs - self._maps.keys()

    def is_open_elsewhere(self, blob: str) -> bool | None:
        """True if somebody but us has the blob open or mapped; None: we do not have it open."""
        with self._lock:
            pages = self._maps.get(blob) or self._lingering.get(blob)
            return None if pages is None else has_other_users(pages.fd)

    def load(self, digest: str, files: Sequence[LoadFile], should_stop: Callable[[], bool]) -> int:
        """Lock a content; returns the bytes that were locked for it.

        Pages that are cached, and that are not ours, are dropped first.

        Raises:
            LoadError, OSError: nothing of it stays locked but what others need.
        """
        with self._lock:
            missing = {file.blob: file for file in files if file.blob not in self._maps}
            fresh, ours = frozenset(self._fresh), self._fresh | self._recorded
            lingering = frozenset(missing.keys() & self._lingering.keys())
            self._pending = frozenset(file.blob for file in files)
        opened: dict[str, FileMap] = {}
        try:
            for name, file in missing.items():
                opened[name] = self._open(name, file)
            self._drop({name: opened[name] for name in missing.keys() - ours}, should_stop)
            lingering = self._pending
            pairs = [(file, opened[name]) for name, file in missing.items()]
            lock_pieces(pairs, fresh, should_stop, threads=self.threads, populate=self.populate)
            with self._lock:
                self.record.save((*self._contents, digest))
                self._contents[digest] = _to_blobs(files)
                self._fresh -= opened.keys()
                self._recorded -= opened.keys()
                self._pending = frozenset()
        except BaseException:
            with self._lock:
                self._pending = frozenset()
                self._close(self._maps.keys() - self._needed(), lingering)
            raise
        return sum(file.size_bytes for file in missing.values())

    def unload(self, digest: str) -> None:
        """Unlock a content; what readers still map of it lingers."""
        with self._lock:
            if digest not in self._contents:
                return
            self.record.narrow(other for other in self._contents if other != digest)
            del self._contents[digest]
            gone = self._maps.keys() - self._needed()
            self._close(gone, gone)

    def restore(self, find_files: Callable[[str], Sequence[LoadFile] | None]) -> int:
        """Lock again what an earlier agent had locked and is still cached in whole; bytes locked.

        Within the capacity: the pages are charged to the dead agent's cgroup, so no limit but ours
        counts them. What is cached in part is ours all the same, and is read by a later `load`.
        """
        locked = 0
        for digest in self.record.load():
            files = find_files(digest)
            if not files:
                continue
            with self._lock:
                self._recorded |= {file.blob for file in files}
            new = {file.blob: file for file in files if file.blob not in self._maps}
            size = sum(file.size_bytes for file in new.values())
            if locked + size > self.capacity_bytes:
                _log.warning("version=%s is not locked again: the host tier is smaller", digest)
                continue
            try:
                self._restore(digest, files, new)
            except OSError as error:
                _log.warning("version=%s is not locked again: %s", digest, error.strerror)
                continue
            locked += size if digest in self._contents else 0
        with self._lock:
            self.record.narrow(self._contents)
        return locked

    def close(self) -> None:
        """Close everything; the record and the cached pages stay for the next agent."""
        with self._lock:
            for pages in (*self._maps.values(), *self._lingering.values()):
                pages.close()
            self._maps.clear()
            self._lingering.clear()
            self._contents.clear()

    def _restore(self, digest: str, files: Sequence[LoadFile], new: Mapping[str, LoadFile]) -> None:
        opened: dict[str, FileMap] = {}
        try:
            for name, file in new.items():
                opened[name] = FileMap(file.path)
            is_cached = all(
                count_resident_bytes(pages.fd) >= pages.size_bytes for pages in opened.values()
            )
            if is_cached:
                pairs = [(file, opened[name]) for name, file in new.items()]
                lock_pieces(
                    pairs,
                    frozenset(opened),
                    lambda: False,
                    threads=self.threads,
                    populate=self.populate,
                )
                with self._lock:
                    self._maps |= opened
                    self._contents[digest] = _to_blobs(files)
                    self._recorded -= {file.blob for file in files}
                opened = {}
        finally:
            for pages in opened.values():
                pages.close()

    def _open(self, name: str, file: LoadFile) -> FileMap:
        """The file's map, of which questions about its users are asked from now on."""
        with self._lock:
            before = self._lingering.pop(name, None)
            if before is not None:
                before.close()
            pages = self._maps[name] = FileMap(file.path)
        if pages.size_bytes != file.size_bytes:
            raise DamagedError(name, min(pages.size_bytes, file.size_bytes) // PIECE_BYTES)
        return pages

    def _drop(self, opened: Mapping[str, FileMap], should_stop: Callable[[], bool]) -> None:
        """Wait, for a moment, until nothing of the files is cached."""
        end = time.monotonic() + _SETTLE_SECONDS
        while True:
            for pages in opened.values():
                drop_cached(pages.fd)
            held = sum(count_resident_bytes(pages.fd) for pages in opened.values())
            if held == 0:
                return
            if should_stop() or time.monotonic() >= end:
                raise HeldByReadersError(held)
            time.sleep(_SETTLE_STEP_SECONDS)

    def _needed(self) -> frozenset[str]:
        """Blobs that stay locked: those of locked contents and of the one that is being loaded."""
        locked = {blob.sha256 for blobs in self._contents.values() for blob in blobs}
        return self._pending | locked

    def _close(self, names: AbstractSet[str], lingering: AbstractSet[str]) -> None:
        """Unlock blobs and drop them from memory; of `lingering` ones, what is left is ours."""
        for name in tuple(names):
            pages = self._maps.pop(name, None)
            if pages is None:
                continue
            self._fresh.discard(name)
            self._recorded.discard(name)
            pages.unmap()
            if name in lingering:
                self._lingering[name] = pages
                self._measure(name)
            else:
                pages.close()

    def _measure(self, name: str) -> int:
        """Bytes of a blob that was let go and that somebody still maps; 0 once nobody does."""
        pages = self._lingering[name]
        drop_cached(pages.fd)
        size = min(pages.size_bytes, count_resident_bytes(pages.fd))
        if size and has_other_users(pages.fd):
            return size
        pages.close()
        del self._lingering[name]
        return 0


def _to_blobs(files: Sequence[LoadFile]) -> frozenset[Blob]:
    return frozenset(Blob(file.blob, file.size_bytes) for file in files)
