"""The disk's book: who holds which bytes, and what is promised. Pure.

LedgerError    a caller's bug: bytes reserved twice, or promised without room
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class LedgerError(Exception):
    """The book would no longer balance."""


@dataclass(frozen=True, slots=True, order=True)
class Blob:
    """Bytes that are on the disk once, however many versions name them."""

    sha256: str
    size_bytes: int


def _empty() -> Mapping[str, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Ledger:
    """One tier's book. It is written anew from what is seen at each turn.

    `versions` are the published contents, `partials` the bytes on disk of unfinished transfers,
    `reservations` the full sizes promised to running ones. Bytes of a running transfer that are
    already on disk are used, the rest of its promise is reserved: together always its full size.
    """

    capacity_bytes: int
    versions: Mapping[str, frozenset[Blob]] = field(default_factory=lambda: MappingProxyType({}))
    partials: Mapping[str, int] = field(default_factory=_empty)
    reservations: Mapping[str, int] = field(default_factory=_empty)
    quarantined_bytes: int = 0
    pending_release_bytes: int = 0

    @property
    def published_bytes(self) -> int:
        """Bytes of all published contents; shared blobs count once."""
        return _sum(self.versions.values())

    @property
    def used_bytes(self) -> int:
        """Bytes on disk but for those pending release."""
        return self.published_bytes + sum(self.partials.values()) + self.quarantined_bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes promised to running transfers and not yet on disk."""
        return sum(
            max(0, size - self.partials.get(uid, 0)) for uid, size in self.reservations.items()
        )

    @property
    def available_bytes(self) -> int:
        """What may still be promised; negative where the capacity was lowered."""
        committed = self.used_bytes + self.reserved_bytes + self.pending_release_bytes
        return self.capacity_bytes - committed

    def needed_bytes(self, uid: str, size_bytes: int) -> int:
        """What a transfer of this size needs beyond its partial files."""
        return max(0, size_bytes - self.partials.get(uid, 0))

    def freed_bytes(self, digests: Iterable[str]) -> int:
        """What removing these contents frees: their blobs that no other content names."""
        gone = set(digests)
        kept = (blobs for digest, blobs in self.versions.items() if digest not in gone)
        return self.published_bytes - _sum(kept)

    def claimed_bytes(self, digests: Iterable[str], uids: Iterable[str]) -> int:
        """What is charged to whoever wants these contents and transfers: in full, shared or not."""
        contents = (self.versions[digest] for digest in set(digests) & self.versions.keys())
        return _sum(contents) + sum(
            max(self.partials.get(uid, 0), self.reservations.get(uid, 0)) for uid in set(uids)
        )

    def reserve(self, uid: str, size_bytes: int) -> Ledger:
        """The book with this promise. Raises LedgerError if it exists or there is no room."""
        if uid in self.reservations:
            message = f"{uid} holds a reservation already"
            raise LedgerError(message)
        needed = self.needed_bytes(uid, size_bytes)
        if needed > max(0, self.available_bytes):
            message = f"{uid} needs {needed} bytes, {self.available_bytes} are available"
            raise LedgerError(message)
        promised = MappingProxyType({**self.reservations, uid: size_bytes})
        return replace(self, reservations=promised)


def _sum(contents: Iterable[frozenset[Blob]]) -> int:
    distinct: set[Blob] = set()
    for blobs in contents:
        distinct |= blobs
    return sum(blob.size_bytes for blob in distinct)
