"""Where the operator's certificate authority is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


class AuthorityDamagedError(Exception):
    """The stored authority cannot be used: delete its Secret, and a new one is made."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM; as read from a store, possibly damaged."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority that signs, and during a rotation the one after or before it.

    `version` is the store's, and guards a replacement.
    """

    current: KeyPair
    following: KeyPair | None = None
    previous: bytes | None = None
    is_rotation_asked: bool = False
    version: str = field(default="", compare=False)

    @property
    def bundle(self) -> bytes:
        """Every certificate that is to be trusted, the one that signs first."""
        others = (self.following.certificate if self.following else None, self.previous)
        return b"".join([self.current.certificate, *(other for other in others if other)])


class AuthorityStore(Protocol):
    """Shared by all replicas. Errors of the API server pass through."""

    async def read(self) -> Authority | None:
        """The authority, or None if none has been made yet."""

    async def create(self, current: KeyPair) -> bool:
        """Keep the authority if there is none; False if another replica was first."""

    async def replace(self, authority: Authority) -> bool:
        """Keep a next state; False if what it was made from is not what is kept any more."""

    async def publish(self, bundle: bytes, now: datetime) -> datetime:
        """Write the bundle where agents read it, unless it is there; since when it has been."""
