"""Reading a version again that does not look as recorded."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace

from modelcache_agent.tiers.blobs import hash_file, looks_as_recorded
from modelcache_agent.tiers.catalog import StoredVersion
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.layout import PUBLISHED_MODE
from modelcache_agent.tiers.records import FileRecord
from modelcache_api.manifest import ContentDigest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hashed:
    """What was found: files as they are now, and the names of blobs that are not what they say."""

    digest: ContentDigest
    files: tuple[FileRecord, ...]
    damaged: frozenset[str]


def hash_version(
    store: DiskStore, stored: StoredVersion, should_stop: Callable[[], bool]
) -> Hashed | None:
    """Hash all blobs of the version; None if it was stopped. Only reads; may take minutes."""
    files: list[FileRecord] = []
    damaged: set[str] = set()
    found: dict[str, FileRecord | None] = {}
    for record in stored.files:
        if record.blob not in found:
            if should_stop():
                return None
            found[record.blob] = _hash_blob(store, record, should_stop)
        now = found[record.blob]
        if now is None:
            damaged.add(record.blob)
        else:
            files.append(replace(now, content=record.content))
    return None if should_stop() else Hashed(stored.digest, tuple(files), frozenset(damaged))


def _hash_blob(
    store: DiskStore, record: FileRecord, should_stop: Callable[[], bool]
) -> FileRecord | None:
    path = store.blobs.path(record)
    try:
        before = path.lstat()
        if not stat.S_ISREG(before.st_mode) or before.st_size != record.content.size_bytes:
            return None
        if hash_file(path, should_stop) != record.content.sha256:
            return None
    except OSError:
        return None
    now = replace(record, inode=before.st_ino, mtime_ns=before.st_mtime_ns)
    return now if looks_as_recorded(path, now) else None


def settle(store: DiskStore, hashed: Hashed) -> bool:
    """True if the version is verified from now on; otherwise it is withdrawn.

    Damaged blobs go to quarantine, so that nobody fetches evidence away.
    """
    stored = store.catalog.get(hashed.digest)
    if stored is None:
        return False
    if hashed.damaged:
        for name in sorted(hashed.damaged):
            store.quarantine.take(
                store.blobs.folder / name, f"its bytes are not those of {hashed.digest}"
            )
        store.remove(hashed.digest)
        return False
    for file in hashed.files:
        store.blobs.path(file).chmod(PUBLISHED_MODE)
    store.restore(hashed.digest, hashed.files)
    _log.info("hashed again version=%s: the bytes are right", hashed.digest)
    return True
