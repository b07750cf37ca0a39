"""Reading a version again that does not look as recorded.

A version is as good as the worst of its files: one damaged file withdraws all of it, because
readers were promised the whole. Its sound blobs stay if another version names them.

RehashError    the bytes could not be judged; nothing is known, so nothing is withdrawn
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from modelcache_agent.tiers.blobs import hash_file, looks_as_recorded
from modelcache_agent.tiers.catalog import StoredVersion
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.errors import StoreError
from modelcache_agent.tiers.layout import PUBLISHED_MODE
from modelcache_agent.tiers.reading import BYTES_ARE_LOST
from modelcache_agent.tiers.records import FileRecord

_log = logging.getLogger(__name__)


class RehashError(StoreError):
    """The bytes could not be judged."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which bytes were judged: it changes if the file is replaced or written to."""

    inode: int
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Hashed:
    """What was found of which version: its sound files as they are now, and its damaged blobs.

    `damaged` says by name which file was judged; None: there was none.
    """

    stored: StoredVersion
    files: tuple[FileRecord, ...]
    damaged: Mapping[str, Identity | None]


def hash_version(
    store: DiskStore, stored: StoredVersion, should_stop: Callable[[], bool]
) -> Hashed | None:
    """Hash all blobs of the version; None if it was stopped. Only reads; may take minutes.

    Raises:
        RehashError, OSError: they could not be judged; try again later.
    """
    files: list[FileRecord] = []
    damaged: dict[str, Identity | None] = {}
    sound: dict[str, FileRecord] = {}
    for record in stored.files:
        if record.blob not in sound and record.blob not in damaged:
            path = store.blobs.path(record)
            before = _identify(path)
            if before is None or not _is_sound(path, before, record, should_stop):
                damaged[record.blob] = before
            else:
                sound[record.blob] = replace(record, inode=before.inode, mtime_ns=before.mtime_ns)
            if should_stop():
                return None
            if _identify(path) != before:
                raise RehashError(f"the blob {record.blob[:16]} changed while it was hashed")
        if record.blob in sound:
            files.append(replace(sound[record.blob], content=record.content))
    return Hashed(stored, tuple(files), damaged)


def _is_sound(
    path: Path, found: Identity, record: FileRecord, should_stop: Callable[[], bool]
) -> bool:
    if found.size_bytes != record.content.size_bytes:
        return False
    try:
        return hash_file(path, should_stop) == record.content.sha256
    except OSError as error:
        if error.errno not in BYTES_ARE_LOST:
            raise
        return False


def _identify(path: Path) -> Identity | None:
    """The regular file under this name, or None if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Identity(found.st_ino, found.st_size, found.st_mtime_ns)


def settle(store: DiskStore, hashed: Hashed) -> bool | None:
    """True: the version is verified from now on. False: it is withdrawn. None: neither.

    A verdict holds only for the very files that were hashed. If the version was published again,
    changed or removed meanwhile, it is dropped. Damaged blobs go to quarantine, so that nobody
    fetches evidence away; other versions that name them are to be hashed too.
    """
    stored = store.catalog.get(hashed.stored.digest)
    if stored is None or stored.is_verified or stored.files != hashed.stored.files:
        return None
    if not _still_lie_there(store, hashed):
        return None
    if hashed.damaged:
        store.catalog.doubt(hashed.damaged)
        for name in sorted(hashed.damaged):
            store.quarantine.take(
                store.blobs.folder / name, f"its bytes are not those of {stored.digest}"
            )
        store.remove(stored.digest)
        return False
    for file in hashed.files:
        store.blobs.path(file).chmod(PUBLISHED_MODE)
    store.restore(stored.digest, hashed.files)
    _log.info("hashed again version=%s: the bytes are right", stored.digest)
    return True


def _still_lie_there(store: DiskStore, hashed: Hashed) -> bool:
    return all(
        _identify(store.blobs.folder / name) == judged for name, judged in hashed.damaged.items()
    ) and all(looks_as_recorded(store.blobs.path(file), file) for file in hashed.files)
