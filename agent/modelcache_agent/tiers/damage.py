"""What becomes of damaged files: told of, moved to quarantine, and replaced.

A version with a damaged file keeps its record and its sound files; it is verified again when the
last of its damaged ones was replaced. All functions block; the store's thread calls them.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from modelcache_agent.decide.scrub import Damage, Stage, describe_damage, is_out_of_place
from modelcache_agent.tiers.blobs import looks_as_recorded
from modelcache_agent.tiers.durable import sync_directory
from modelcache_agent.tiers.errors import StoreError
from modelcache_api.manifest import digest_hex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.tiers.catalog import StoredVersion
    from modelcache_agent.tiers.disk import DiskStore
    from modelcache_agent.tiers.records import FileRecord

_log = logging.getLogger(__name__)


def note_damage(store: DiskStore, damage: Damage) -> None:
    """From now on no version that names the file is verified; a restart knows it too."""
    store.catalog.note_damage(damage)
    store.catalog.note_damage(store.scrub_book.note_damage(damage))
    _log.warning("blob=%s %s (%s)", damage.blob[:16], describe_damage([damage]), damage.stage)


def note_sound(store: DiskStore, blob: str) -> None:
    """The file was read in whole and is right."""
    store.catalog.absolve(blob)
    store.scrub_book.note_sound(blob)


def isolate(store: DiskStore, blob: str) -> None:
    """Move a file whose damage is confirmed to quarantine.

    Names go, bytes stay: a process that has the file open, and a pod's volume that shows it, keep
    what they have. The trees of its versions go as well, so that nobody comes upon it there.

    Raises:
        OSError: the disk refuses; to be tried again.
    """
    damage = store.scrub_book.damaged.get(blob)
    if damage is None or damage.stage is not Stage.CONFIRMED:
        return
    for version in store.catalog.list_with(blob):
        store.released.take(store.layout.version(digest_hex(version.digest)))
    sync_directory(store.layout.versions)
    path = store.blobs.folder / blob
    if is_judged(store, damage) and not store.quarantine.take(path, describe_damage([damage])):
        raise StoreError("a damaged file cannot be moved to quarantine")
    sync_directory(store.blobs.folder)
    note_damage(store, replace(damage, stage=Stage.QUARANTINED))
    mend_others(store)


def is_judged(store: DiskStore, damage: Damage) -> bool:
    """True if the file under its name is the very one that was found damaged."""
    try:
        found = os.lstat(store.blobs.folder / damage.blob)
    except FileNotFoundError:
        return False
    return (found.st_ino, found.st_mtime_ns) == (damage.inode, damage.mtime_ns)


def find_known_damage(store: DiskStore, files: Iterable[FileRecord]) -> tuple[Damage, ...]:
    """Damage of these files that an earlier process found and that is not repaired yet."""
    found = {}
    for file in files:
        damage = store.scrub_book.damaged.get(file.blob)
        if damage is not None and (file.inode, file.mtime_ns) == (damage.inode, damage.mtime_ns):
            found[file.blob] = _at_start(store, damage)
    return tuple(found.values())


def _at_start(store: DiskStore, damage: Damage) -> Damage:
    """A kill may have come between the move and the word on it."""
    if damage.stage is Stage.QUARANTINED or is_judged(store, damage):
        return damage
    return store.scrub_book.note_damage(replace(damage, stage=Stage.QUARANTINED))


def refuse_damaged(store: DiskStore, blob: str) -> None:
    """A file that waits for quarantine stands where a sound one is to go.

    Raises:
        StoreError: it does.
    """
    damage = store.scrub_book.damaged.get(blob)
    if damage is not None and damage.stage is not Stage.QUARANTINED and is_judged(store, damage):
        raise StoreError(f"{describe_damage([damage])}: it has to go to quarantine first")


def mend_others(store: DiskStore) -> None:
    """Versions whose damaged files are all here again are put together anew, without a fetch."""
    for version in store.catalog:
        files = _find_sound(store, version) if is_out_of_place(version.held) else None
        if files is not None:
            try:
                store.restore(version.digest, files)
            except (OSError, ValueError) as error:
                # It is repaired like any other, by a transfer that finds nothing to fetch.
                _log.warning("version=%s cannot be put together: %s", version.digest, error)
            else:
                _log.info("repaired version=%s", version.digest)
    left = {damage.blob for version in store.catalog for damage in version.damage}
    repaired = store.scrub_book.damaged.keys() - left
    if repaired:
        store.scrub_book.note_repaired(repaired)


def _find_sound(store: DiskStore, version: StoredVersion) -> tuple[FileRecord, ...] | None:
    """The version's files, with sound ones in place of the damaged; None if one is missing."""
    damaged = {damage.blob for damage in version.damage}
    files = []
    for file in version.files:
        found: FileRecord | None = file
        if file.blob in damaged:
            found = store.catalog.find_blob(file.content.sha256)
        if found is None or not looks_as_recorded(store.blobs.path(found), found):
            return None
        files.append(replace(found, content=file.content))
    return tuple(files)
