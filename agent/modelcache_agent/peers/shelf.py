"""What other nodes may read here: verified versions, and verified pieces of what is fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.tiers.blobs import looks_as_recorded
from modelcache_api.manifest import PIECE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from modelcache_agent.fetch import FetchEngine
    from modelcache_agent.tiers.catalog import StoredVersion
    from modelcache_agent.tiers.disk import DiskStore


@dataclass(frozen=True, slots=True)
class Offer:
    """Bytes [start, end) of a file of `size_bytes`; `end` may be short of what was asked for."""

    location: Path
    start: int
    end: int
    size_bytes: int


class Shelf:
    """Asked by the serving threads."""

    def __init__(self, store: DiskStore, engine: FetchEngine) -> None:
        self._store = store
        self._engine = engine

    def verified_bytes(self, uid: str, source_digest: str) -> int | None:
        """How many bytes of the version are here; None if it is neither held nor fetched.

        Bytes whose adoption is still asked for count: whoever waits sees that they are all here.
        """
        held = self._find_version(uid, source_digest, must_be_adopted=False)
        if held is not None:
            return sum(file.content.size_bytes for file in held.files)
        return self._engine.verified_bytes(uid)

    def find(self, uid: str, source_digest: str, path: str, start: int, end: int) -> Offer | None:
        """The asked range of the file, or its beginning; None if not even that is here."""
        held = self._find_version(uid, source_digest, must_be_adopted=True)
        if held is not None:
            return self._find_held(held, path, start, end)
        if start % PIECE_BYTES:
            return None
        first = start // PIECE_BYTES
        found = self._engine.find_pieces(uid, source_digest, path, first, -(-end // PIECE_BYTES))
        if found is None or found[1] == 0:
            return None
        location, pieces = found
        try:
            size = location.stat().st_size
        except OSError:
            return None
        return Offer(location, start, min(end, size, (first + pieces) * PIECE_BYTES), size)

    def _find_version(
        self, uid: str, source_digest: str, *, must_be_adopted: bool
    ) -> StoredVersion | None:
        """Until a content is adopted nobody but this node vouches for the bytes."""
        for version in self._store.catalog.snapshot:
            for origin in version.origins:
                named = (origin.uid, origin.source_digest) == (uid, source_digest)
                is_good = origin.adopted or not must_be_adopted
                if named and is_good and version.is_verified:
                    return version
        return None

    def _find_held(self, held: StoredVersion, path: str, start: int, end: int) -> Offer | None:
        record = next((file for file in held.files if file.content.path == path), None)
        if record is None:
            return None
        location = self._store.blobs.path(record)
        size = record.content.size_bytes
        if start >= size or not looks_as_recorded(location, record):
            return None
        return Offer(location, start, min(end, size), size)
