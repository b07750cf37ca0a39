"""What the store holds, in memory. The pieces' hashes stay on disk: they would be most of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from modelcache_agent.decide.ledger import Blob
from modelcache_agent.decide.scrub import Damage
from modelcache_agent.decide.world import Held, Origin
from modelcache_agent.tiers.records import FileRecord, VersionRecord
from modelcache_api.manifest import ContentDigest


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One published version. Times are in Unix seconds; `blobs` goes with `files`.

    A version with `damage` is not verified, but its other files are as sound as they were.
    """

    digest: ContentDigest
    files: tuple[FileRecord, ...]
    blobs: frozenset[Blob]
    origins: tuple[Origin, ...]
    last_used: float
    verified_at: float
    is_verified: bool = True
    damage: tuple[Damage, ...] = ()

    @classmethod
    def of(
        cls, record: VersionRecord, *, last_used: float, is_verified: bool = True
    ) -> StoredVersion:
        """The version of a record, without the pieces."""
        files = tuple(
            replace(file, content=replace(file.content, pieces=())) for file in record.files
        )
        blobs = _to_blobs(files)
        return cls(
            record.digest,
            files,
            blobs,
            record.origins,
            last_used,
            record.verified_at,
            is_verified,
        )

    def with_files(self, files: tuple[FileRecord, ...]) -> StoredVersion:
        """The same content as it lies on the disk now."""
        return replace(self, files=files, blobs=_to_blobs(files))

    @property
    def blob_names(self) -> frozenset[str]:
        """File names of its blobs."""
        return frozenset(blob.sha256 for blob in self.blobs)

    @property
    def held(self) -> Held:
        """As decisions see it."""
        return Held(
            self.digest, self.blobs, self.last_used, self.origins, self.is_verified, self.damage
        )

    @property
    def sound_files(self) -> tuple[FileRecord, ...]:
        """Files that may be used: all, none while it is in doubt, or those without damage."""
        if self.is_verified:
            return self.files
        damaged = {damage.blob for damage in self.damage}
        return tuple(file for file in self.files if damaged and file.blob not in damaged)


class Catalog:
    """Versions by digest, in order of digest."""

    def __init__(self) -> None:
        self._versions: dict[ContentDigest, StoredVersion] = {}
        self._by_sha256: dict[str, FileRecord] | None = None
        self.snapshot: tuple[StoredVersion, ...] = ()
        """All versions of this moment; other threads may read it."""

    def __iter__(self) -> Iterator[StoredVersion]:
        return iter([self._versions[digest] for digest in sorted(self._versions)])

    def get(self, digest: ContentDigest) -> StoredVersion | None:
        """The version with that digest."""
        return self._versions.get(digest)

    def put(self, version: StoredVersion) -> None:
        """Add or replace a version."""
        self._versions[version.digest] = version
        self._note_change()

    def drop(self, digest: ContentDigest) -> None:
        """Forget a version."""
        self._versions.pop(digest, None)
        self._note_change()

    def _note_change(self) -> None:
        self._by_sha256 = None
        self.snapshot = tuple(self._versions.values())

    def doubt(self, blob_names: Iterable[str]) -> None:
        """Versions that name these blobs count as unverified until they were hashed again."""
        doubtful = frozenset(blob_names)
        for version in self:
            if not doubtful.isdisjoint(version.blob_names):
                self.put(replace(version, is_verified=False, damage=()))

    def note_damage(self, damage: Damage) -> None:
        """All versions that name this file are damaged; earlier words on the file are replaced.

        Versions in doubt stay so: hashing all of their files finds this one too.
        """
        for version in self:
            if damage.blob in version.blob_names and (version.is_verified or version.damage):
                others = (known for known in version.damage if known.blob != damage.blob)
                self.put(replace(version, is_verified=False, damage=(*others, damage)))

    def absolve(self, blob: str) -> None:
        """The file is sound after all."""
        for version in self:
            if any(damage.blob == blob for damage in version.damage):
                left = tuple(damage for damage in version.damage if damage.blob != blob)
                self.put(replace(version, is_verified=not left, damage=left))

    def list_with(self, blob: str) -> tuple[StoredVersion, ...]:
        """The versions that name this file."""
        return tuple(version for version in self if blob in version.blob_names)

    @property
    def blob_names(self) -> frozenset[str]:
        """File names of all blobs that some version needs."""
        return frozenset(name for version in self._versions.values() for name in version.blob_names)

    def find_blob(self, sha256: str) -> FileRecord | None:
        """A sound file with this digest, in any version."""
        if self._by_sha256 is None:
            self._by_sha256 = {
                file.content.sha256: file
                for version in self._versions.values()
                for file in version.sound_files
            }
        return self._by_sha256.get(sha256)


def _to_blobs(files: tuple[FileRecord, ...]) -> frozenset[Blob]:
    """A blob is named as its file: a second copy of one content takes room of its own."""
    return frozenset(Blob(file.blob, file.content.size_bytes) for file in files)
