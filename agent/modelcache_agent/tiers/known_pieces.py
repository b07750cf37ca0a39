"""The pieces of bytes that are here already, as they were hashed when they came."""

from __future__ import annotations

from modelcache_agent.tiers.disk import DiskStore


def find_pieces(store: DiskStore, sha256: str) -> tuple[str, ...]:
    """blake3 of the pieces of a blob, from the record of a version in which it is sound.

    Raises:
        OSError, ValueError: the record cannot be read.
    """
    for stored in store.catalog:
        if any(file.content.sha256 == sha256 for file in stored.sound_files):
            files = store.load_record(stored.digest).files
            return next(file.content.pieces for file in files if file.content.sha256 == sha256)
    return ()
