"""The content-addressed store on the node's disk.

Publication: blobs -> tree under a temporary name -> record -> rename. Withdrawal: rename the tree
away -> record -> blobs. A crash between any two steps is repaired at the next start: what has a
record and all its blobs is held, everything else is not. All methods block; one thread calls them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from modelcache_agent.decide.policies.gdsf import find_priority
from modelcache_agent.decide.scrub import Checkup
from modelcache_agent.decide.watermarks import Space
from modelcache_agent.decide.world import Held, Origin
from modelcache_agent.tiers.blobs import BlobFolder, looks_as_recorded
from modelcache_agent.tiers.catalog import Catalog, StoredVersion
from modelcache_agent.tiers.damage import mend_others, refuse_damaged
from modelcache_agent.tiers.decision_book import DecisionBook
from modelcache_agent.tiers.durable import (
    allocated_bytes,
    remove_anything,
    sync_directory,
    touch_device,
    write_atomically,
)
from modelcache_agent.tiers.errors import StoreError
from modelcache_agent.tiers.evictions import EvictionMarks
from modelcache_agent.tiers.history_book import HistoryBook
from modelcache_agent.tiers.layout import StoreLayout
from modelcache_agent.tiers.quarantine import Quarantine
from modelcache_agent.tiers.records import (
    FileRecord,
    VersionRecord,
    decode_record,
    encode_record,
)
from modelcache_agent.tiers.release import ReleasedFiles
from modelcache_agent.tiers.scrub_book import ScrubBook
from modelcache_agent.tiers.trees import build_tree, describe_tree_fault
from modelcache_agent.tiers.usage import is_open_elsewhere
from modelcache_api.manifest import ContentDigest, ContentManifest, digest_hex

_log = logging.getLogger(__name__)
# The time of last use is written down at most this often.
_TOUCH_SECONDS: Final = 60.0
# The device itself is asked at most this often.
_DEVICE_SECONDS: Final = 30.0

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Survey:
    """What is on the disk now. `seen_at` is in Unix seconds by the store's clock."""

    held: tuple[Held, ...]
    partials: Mapping[str, int]
    quarantined_bytes: int
    quarantined: int
    pending_release_bytes: int
    space: Space
    seen_at: float
    evicted: frozenset[str]
    adopted: Mapping[str, int]
    """Bytes of local trees that were handed over, by the folder's name."""
    checkups: tuple[Checkup, ...] = ()

    @property
    def free_bytes(self) -> int:
        """What the file system has left for us."""
        return self.space.free_bytes


class DiskStore:
    """One agent's store; made by `open_store`, which holds the lock and has repaired it.

    `step` is called with a name before each durable step; tests end the process there.
    """

    def __init__(
        self,
        layout: StoreLayout,
        *,
        step: Step,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.layout = layout
        self.quarantine = Quarantine(layout.quarantine)
        self.released = ReleasedFiles(layout.released)
        self.blobs = BlobFolder(layout.blobs, self.quarantine)
        self.catalog = Catalog()
        self.marks = EvictionMarks(layout.evicted)
        self.scrub_book = ScrubBook(layout.scrub, clock, monotonic)
        self.history = HistoryBook(layout.history, clock)
        self.decisions = DecisionBook(layout.decisions, clock)
        self._step = step
        self._clock = clock
        self._touched_at = 0.0
        self.ask_holder: Callable[[str], bool | None] = lambda _blob: None
        """Of blobs that this process itself keeps open: whether others do as well."""

    def survey(self) -> Survey:
        """Everything that decisions need; also reaps what readers have closed meanwhile.

        Raises:
            OSError: the disk is broken; it is asked itself now and then, not its cache.
        """
        self._touch_device()
        return Survey(
            held=tuple(self._look(version) for version in self.catalog),
            partials=self._measure(self.layout.partial),
            quarantined_bytes=self.quarantine.size_bytes(),
            quarantined=self.quarantine.count(),
            pending_release_bytes=self.released.reap(),
            space=_measure_space(self.layout.root),
            seen_at=self._clock(),
            evicted=self.marks.uids,
            adopted=self._measure(self.layout.adopt),
            checkups=self.scrub_book.list_checkups(self.catalog),
        )

    def _look(self, stored: StoredVersion) -> Held:
        return replace(stored.held, history=self.history.look(stored.digest))

    def save_history(self) -> None:
        """Write down what was counted since it was last written, if the disk can."""
        self.history.save(frozenset(stored.digest for stored in self.catalog))

    def _touch_device(self) -> None:
        now = self._clock()
        if abs(now - self._touched_at) >= _DEVICE_SECONDS:
            touch_device(self.layout.about)
            self._touched_at = now

    def find_blob(self, sha256: str, size_bytes: int) -> Path | None:
        """The blob that a verified version names so, if it still looks as recorded."""
        record = self.catalog.find_blob(sha256)
        if record is None or record.content.size_bytes != size_bytes:
            return None
        path = self.blobs.path(record)
        return path if looks_as_recorded(path, record) else None

    def publish(
        self, manifest: ContentManifest, finished: Mapping[str, Path], origin: Origin
    ) -> ContentDigest:
        """Publish files that were verified: `finished` by path; others must be here as blobs.

        If the content is here already, the origin is added and the own copy dropped: readers of
        the first one never notice.

        Raises:
            StoreError, OSError: nothing was published; partial files are still there.
        """
        held = self.catalog.get(manifest.digest)
        if held is not None and held.is_verified:
            self.add_origin(manifest.digest, origin)
        else:
            self._publish_new(manifest, finished, origin)
            mend_others(self)
        self._step("drop-partial")
        self.drop_partial(origin.uid)
        return manifest.digest

    def _publish_new(
        self, manifest: ContentManifest, finished: Mapping[str, Path], origin: Origin
    ) -> None:
        try:
            self._publish_steps(manifest, finished, origin)
        except (StoreError, OSError):
            self._take_back(manifest, finished)
            raise

    def _take_back(self, manifest: ContentManifest, finished: Mapping[str, Path]) -> None:
        """After a failure the finished files are partial files again, and theirs alone.

        Else the next try would write to an inode that another version may have published.
        """
        hex_digest = digest_hex(manifest.digest)
        left = [self.layout.new_tree(hex_digest)]
        if self.catalog.get(manifest.digest) is None:
            left += [self.layout.version(hex_digest), self.layout.record(hex_digest)]
        for path in left:
            with suppress(OSError):
                remove_anything(path)
        for content in manifest.files:
            if content.path in finished:
                with suppress(OSError):
                    self.blobs.give_back(content, finished[content.path])

    def _publish_steps(
        self, manifest: ContentManifest, finished: Mapping[str, Path], origin: Origin
    ) -> None:
        hex_digest = digest_hex(manifest.digest)
        self.marks.remove([origin.uid])
        records = []
        for content in manifest.files:
            self._step("blob")
            known = self.catalog.find_blob(content.sha256)
            if known is not None and looks_as_recorded(self.blobs.path(known), known):
                records.append(replace(known, content=content))
            else:
                refuse_damaged(self, content.sha256)
                records.append(self.blobs.take(content, finished.get(content.path)))
        sync_directory(self.layout.blobs)
        self._step("tree")
        new_tree = self.layout.new_tree(hex_digest)
        files = build_tree(new_tree, tuple(records), self.blobs)
        now = self._clock()
        before = self.catalog.get(manifest.digest)
        origins = () if before is None else _without(before.origins, origin)
        record = VersionRecord(manifest.digest, files, (*origins, origin), verified_at=now)
        self._step("record")
        self._rewrite(record, last_used=now)
        self._step("rename")
        self._swap_in(new_tree, self.layout.version(hex_digest))
        self._step("published")
        self.catalog.put(StoredVersion.of(record, last_used=now))
        if before is None:
            self.history.note_arrival(manifest.digest)

    def _swap_in(self, new_tree: Path, target: Path) -> None:
        """The tree gets its name; an unverified one of that name moves away first."""
        if target.exists():
            self.released.take(target)
        new_tree.rename(target)
        sync_directory(self.layout.versions)

    def restore(self, digest: ContentDigest, files: tuple[FileRecord, ...]) -> None:
        """A version whose blobs were just verified: record and tree are made to agree with them.

        A tree that is not the published one goes to quarantine.
        """
        stored = self.catalog.get(digest)
        if stored is None:
            return
        hex_digest = digest_hex(digest)
        target = self.layout.version(hex_digest)
        fault = describe_tree_fault(target, files)
        if fault is not None:
            files = build_tree(self.layout.new_tree(hex_digest), files, self.blobs)
        if files != stored.files:
            whole = self.load_record(digest)
            self._rewrite(_with_inodes(whole, files), stored.last_used)
        if fault is not None:
            if target.exists():
                self.quarantine.take(target, fault)
            self.layout.new_tree(hex_digest).rename(target)
            sync_directory(self.layout.versions)
        self.catalog.put(replace(stored.with_files(files), is_verified=True, damage=()))

    def add_origin(self, digest: ContentDigest, origin: Origin) -> None:
        """Note that this version's source gave these bytes, or that they were adopted."""
        stored = self.catalog.get(digest)
        if stored is not None and origin not in stored.origins:
            self._set_origins(stored, (*_without(stored.origins, origin), origin))

    def drop_origin(self, digest: ContentDigest, origin: Origin) -> None:
        """Note that these bytes are not this version's content, whoever gave them."""
        stored = self.catalog.get(digest)
        if stored is not None:
            self._set_origins(stored, _without(stored.origins, origin))

    def _set_origins(self, stored: StoredVersion, origins: tuple[Origin, ...]) -> None:
        record = replace(self.load_record(stored.digest), origins=origins)
        self._rewrite(record, stored.last_used)
        self.catalog.put(replace(stored, origins=origins))

    def load_record(self, digest: ContentDigest) -> VersionRecord:
        """The whole record with its pieces, which memory does not hold."""
        path = self.layout.record(digest_hex(digest))
        return decode_record(path.read_bytes(), digest)

    def rewrite_pieces(self, stored: StoredVersion, pieces: Mapping[str, tuple[str, ...]]) -> None:
        """Write the version's record anew: `pieces` are the blake3 of its files, by blob's name."""
        files = tuple(
            replace(file, content=replace(file.content, pieces=pieces[file.blob]))
            for file in stored.files
        )
        record = VersionRecord(stored.digest, files, stored.origins, stored.verified_at)
        self._rewrite(record, stored.last_used)

    def _rewrite(self, record: VersionRecord, last_used: float) -> None:
        path = self.layout.record(digest_hex(record.digest))
        write_atomically(path, encode_record(record))
        os.utime(path, (last_used, last_used))

    def find_in_use(self) -> frozenset[str]:
        """Contents with a file that some process has open or mapped; notes their use."""
        used = frozenset(stored.digest for stored in self.catalog if self._is_in_use(stored))
        for digest in used:
            self.note_use(ContentDigest(digest))
        return used

    def has_readers(self, digest: ContentDigest) -> bool:
        """True if some process has a file open that this content shares with no other one here."""
        stored = self.catalog.get(digest)
        if stored is None:
            return False
        others = (other.blob_names for other in self.catalog if other.digest != digest)
        return any(self._is_open(name) for name in stored.blob_names.difference(*others))

    def now(self) -> float:
        """Unix seconds by the store's own clock."""
        return self._clock()

    def note_use(self, digest: ContentDigest) -> None:
        """Write down that the content is used now; what was written a moment ago will do."""
        now = self._clock()
        stored = self.catalog.get(digest)
        if stored is not None and not 0 <= now - stored.last_used < _TOUCH_SECONDS:
            self.catalog.put(replace(stored, last_used=now))
            # Lost with a restart at worst: no reason to stop on a disk that is read-only.
            with suppress(OSError):
                os.utime(self.layout.record(digest_hex(digest)), (now, now))

    def _is_in_use(self, stored: StoredVersion) -> bool:
        return any(self._is_open(name) for name in stored.blob_names)

    def _is_open(self, blob: str) -> bool:
        answer = self.ask_holder(blob)
        return is_open_elsewhere(self.blobs.folder / blob) if answer is None else answer

    def evict(self, digest: ContentDigest, uids: Iterable[str]) -> bool:
        """Give an unused content up for a newcomer. False if a process has it open after all."""
        stored = self.catalog.get(digest)
        if stored is None:
            return True
        if self._is_in_use(stored):
            return False
        self.marks.add(uids)
        priority = find_priority(self._look(stored))
        self._withdraw(stored)
        self.history.note_eviction(priority)
        return True

    def age_of(self, digest: ContentDigest) -> float:
        """Seconds since the content came to this node; it may have gone since."""
        return max(0.0, self.now() - self.history.look(digest).arrived)

    def remove(self, digest: ContentDigest) -> None:
        """Give a content up; what readers hold open is pending release until they close it."""
        stored = self.catalog.get(digest)
        if stored is not None:
            self._withdraw(stored)

    def _withdraw(self, stored: StoredVersion) -> None:
        hex_digest = digest_hex(stored.digest)
        # If a step fails, nobody may take what is left for a whole version.
        self.catalog.put(replace(stored, is_verified=False))
        self._step("withdraw-tree")
        self.released.take(self.layout.version(hex_digest))
        sync_directory(self.layout.versions)
        self._step("withdraw-record")
        self.layout.record(hex_digest).unlink(missing_ok=True)
        sync_directory(self.layout.records)
        self.catalog.drop(stored.digest)
        for name in sorted(stored.blob_names - self.catalog.blob_names):
            self._step("withdraw-blob")
            self.released.take(self.blobs.folder / name)
        self._step("withdraw-reap")
        self.released.reap()
        _log.info("removed version=%s", stored.digest)

    def drop_partial(self, uid: str) -> None:
        """Delete the unfinished files of a version, and what was handed over for it."""
        remove_anything(self.layout.partial / uid)
        remove_anything(self.layout.adopt / uid)

    def forget_evictions(self, wanted: Iterable[str]) -> None:
        """Drop the marks of entries that are gone."""
        self.marks.keep_only(wanted)

    @staticmethod
    def _measure(folder: Path) -> Mapping[str, int]:
        folders = (path for path in folder.iterdir() if path.is_dir())
        sizes = ((path.name, allocated_bytes(path)) for path in folders)
        return {name: max(size, 1) for name, size in sizes}


def _measure_space(root: Path) -> Space:
    found = os.statvfs(root)
    return Space(
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        total_files=found.f_files,
        free_files=found.f_favail,
    )


def _without(origins: tuple[Origin, ...], origin: Origin) -> tuple[Origin, ...]:
    same = (origin.uid, origin.source_digest)
    return tuple(old for old in origins if (old.uid, old.source_digest) != same)


def _with_inodes(record: VersionRecord, files: tuple[FileRecord, ...]) -> VersionRecord:
    """The record with its pieces, and the places of its files as they are now."""
    now = {file.content.path: file for file in files}
    merged = tuple(replace(now[old.content.path], content=old.content) for old in record.files)
    return replace(record, files=merged)
