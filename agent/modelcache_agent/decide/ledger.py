"""The disk's book: who holds which bytes, and what is promised. Pure.

LedgerError    a caller's bug: bytes reserved twice, released twice, or promised without room
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_Value = TypeVar("_Value")


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
    """One tier's book. Every method returns a new book.

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

    def reserve(self, uid: str, size_bytes: int) -> Ledger:
        """The book with this promise. Raises LedgerError if it exists or there is no room."""
        if uid in self.reservations:
            message = f"{uid} holds a reservation already"
            raise LedgerError(message)
        needed = self.needed_bytes(uid, size_bytes)
        if needed > max(0, self.available_bytes):
            message = f"{uid} needs {needed} bytes, {self.available_bytes} are available"
            raise LedgerError(message)
        return replace(self, reservations=_with(self.reservations, uid, size_bytes))

    def release(self, uid: str) -> Ledger:
        """The book without this promise. Raises LedgerError if there is none."""
        if uid not in self.reservations:
            message = f"{uid} holds no reservation"
            raise LedgerError(message)
        return replace(self, reservations=_without(self.reservations, uid))

    def set_partial(self, uid: str, size_bytes: int) -> Ledger:
        """The book with this many bytes of unfinished files; zero forgets them."""
        if size_bytes == 0:
            return replace(self, partials=_without(self.partials, uid))
        return replace(self, partials=_with(self.partials, uid, size_bytes))

    def add_version(self, digest: str, blobs: frozenset[Blob]) -> Ledger:
        """The book with a published content; one that is there already changes nothing."""
        return replace(self, versions=_with(self.versions, digest, blobs))

    def remove_version(self, digest: str) -> Ledger:
        """The book without a content. Raises LedgerError if it is not there."""
        if digest not in self.versions:
            message = f"{digest} is not held"
            raise LedgerError(message)
        return replace(self, versions=_without(self.versions, digest))


def _sum(contents: Iterable[frozenset[Blob]]) -> int:
    distinct: set[Blob] = set()
    for blobs in contents:
        distinct |= blobs
    return sum(blob.size_bytes for blob in distinct)


def _with(mapping: Mapping[str, _Value], key: str, value: _Value) -> Mapping[str, _Value]:
    return MappingProxyType({**mapping, key: value})


def _without(mapping: Mapping[str, _Value], key: str) -> Mapping[str, _Value]:
    return MappingProxyType({name: value for name, value in mapping.items() if name != key})
