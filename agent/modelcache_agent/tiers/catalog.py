"""What the store holds, in memory. The pieces' hashes stay on disk: they would be most of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from modelcache_agent.decide.ledger import Blob
from modelcache_agent.decide.world import Held, Origin
from modelcache_agent.tiers.records import FileRecord, VersionRecord
from modelcache_api.manifest import ContentDigest


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One published version. `last_used` is in Unix seconds."""

    digest: ContentDigest
    files: tuple[FileRecord, ...]
    origins: tuple[Origin, ...]
    last_used: float
    is_verified: bool = True

    @classmethod
    def of(
        cls, record: VersionRecord, *, last_used: float, is_verified: bool = True
    ) -> StoredVersion:
        """The version of a record, without the pieces."""
        files = tuple(
            replace(file, content=replace(file.content, pieces=())) for file in record.files
        )
        return cls(record.digest, files, record.origins, last_used, is_verified)

    @property
    def blob_names(self) -> frozenset[str]:
        """File names of its blobs."""
        return frozenset(file.blob for file in self.files)

    @property
    def held(self) -> Held:
        """As decisions see it."""
        sizes = {file.blob: file.content.size_bytes for file in self.files}
        return Held(
            digest=self.digest,
            blobs=frozenset(Blob(name, size) for name, size in sizes.items()),
            last_used=self.last_used,
            origins=self.origins,
            is_verified=self.is_verified,
        )


class Catalog:
    """Versions by digest, in order of digest."""

    def __init__(self) -> None:
        self._versions: dict[ContentDigest, StoredVersion] = {}

    def __iter__(self) -> Iterator[StoredVersion]:
        return iter([self._versions[digest] for digest in sorted(self._versions)])

    def get(self, digest: ContentDigest) -> StoredVersion | None:
        """The version with that digest."""
        return self._versions.get(digest)

    def put(self, version: StoredVersion) -> None:
        """Add or replace a version."""
        self._versions[version.digest] = version

    def drop(self, digest: ContentDigest) -> None:
        """Forget a version."""
        self._versions.pop(digest, None)

    @property
    def blob_names(self) -> frozenset[str]:
        """File names of all blobs that some version needs."""
        return frozenset(name for version in self._versions.values() for name in version.blob_names)

    def find_blob(self, sha256: str) -> FileRecord | None:
        """A verified file with this digest, in any version."""
        for version in self._versions.values():
            if version.is_verified:
                for file in version.files:
                    if file.content.sha256 == sha256:
                        return file
        return None
