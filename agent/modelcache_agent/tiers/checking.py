"""What is to be read of the store, and what follows from what was read.

All functions block; the store's thread calls them. Reading itself happens outside it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.decide.scrub import Damage, Stage
from modelcache_agent.tiers.blobs import looks_as_recorded
from modelcache_agent.tiers.damage import is_judged, note_damage, note_sound
from modelcache_agent.tiers.reading import Reading

if TYPE_CHECKING:
    from modelcache_agent.tiers.catalog import StoredVersion
    from modelcache_agent.tiers.disk import DiskStore
    from modelcache_agent.tiers.reading import Whole
    from modelcache_agent.tiers.records import FileRecord, VersionRecord

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Neither sound nor damaged: it was replaced or written to meanwhile, and is in doubt."""

    is_sound: bool
    damaged_pieces: int = 0


def find_reading(store: DiskStore, blob: str) -> tuple[Reading, int] | None:
    """The published file and the piece to go on from; None if nobody relies on it.

    A file that does not even look as recorded puts its versions in doubt: they are hashed.
    """
    for version in store.catalog.list_with(blob):
        known = {damage.blob: damage.stage for damage in version.damage}
        if not (version.is_verified or known.get(blob) is Stage.FOUND):
            continue
        file = next(file for file in version.files if file.blob == blob)
        if not looks_as_recorded(store.blobs.path(file), file):
            store.catalog.doubt([blob])
            return None
        reading = make_reading(store, file, find_pieces(store, version, blob))
        cursor = store.scrub_book.cursor
        judged = (file.blob, file.inode, file.mtime_ns)
        if cursor is None or (cursor.blob, cursor.inode, cursor.mtime_ns) != judged:
            return reading, 0
        return reading, min(cursor.pieces, len(reading.pieces))
    return None


def make_reading(store: DiskStore, file: FileRecord, pieces: tuple[str, ...]) -> Reading:
    """The file as its record has it."""
    return Reading(
        blob=file.blob,
        path=file.content.path,
        location=store.blobs.path(file),
        size_bytes=file.content.size_bytes,
        sha256=file.content.sha256,
        inode=file.inode,
        mtime_ns=file.mtime_ns,
        pieces=pieces,
    )


def find_pieces(store: DiskStore, version: StoredVersion, blob: str) -> tuple[str, ...]:
    """blake3 of the file's pieces; none if the record of the version cannot be read."""
    record = _load(store, version)
    files = () if record is None else record.files
    return next((file.content.pieces for file in files if file.blob == blob), ())


def _load(store: DiskStore, version: StoredVersion) -> VersionRecord | None:
    try:
        return store.load_record(version.digest)
    except (OSError, ValueError) as error:
        _log.warning("version=%s its record cannot be read: %s", version.digest, error)
        return None


def heal_records(store: DiskStore, blob: str, pieces: tuple[str, ...]) -> tuple[StoredVersion, ...]:
    """Write the pieces of a sound file into the records that have others.

    Returns the versions whose records cannot be read: they are to be made of all their files.
    """
    lost = []
    for version in store.catalog.list_with(blob):
        record = _load(store, version) if version.is_verified else None
        if record is None:
            lost += [version] if version.is_verified else []
            continue
        known = {file.blob: file.content.pieces for file in record.files}
        if known[blob] != pieces:
            store.rewrite_pieces(version, known | {blob: pieces})
            _log.warning("version=%s its record had wrong pieces of %s", version.digest, blob[:16])
    return tuple(lost)


def suspect(store: DiskStore, reading: Reading, piece: int) -> bool:
    """A piece is not as recorded. False if the file was changed or replaced while it was read."""
    return _note(store, reading, (piece,), Stage.FOUND)


def judge(store: DiskStore, reading: Reading, whole: Whole) -> Judgement:
    """What all of the file's bytes say; damage is noted.

    The sha256 decides, because the content's name stands for it; nothing stands for the blake3 of
    pieces in a record, which may be damaged itself and is then written anew.
    """
    if whole.sha256 == reading.sha256:
        note_sound(store, reading.blob)
        return Judgement(is_sound=True)
    wrong = tuple(
        number
        for number, found in enumerate(whole.pieces)
        if found is None or (reading.has_pieces and found != reading.pieces[number])
    )
    if not _note(store, reading, wrong, Stage.CONFIRMED):
        return Judgement(is_sound=False)
    return Judgement(is_sound=False, damaged_pieces=max(1, len(wrong)))


def _note(store: DiskStore, reading: Reading, pieces: tuple[int, ...], stage: Stage) -> bool:
    damage = Damage(
        reading.blob,
        reading.path,
        reading.size_bytes,
        reading.inode,
        reading.mtime_ns,
        pieces,
        stage,
    )
    if not is_judged(store, damage):
        store.catalog.doubt([reading.blob])
        return False
    note_damage(store, damage)
    return True
