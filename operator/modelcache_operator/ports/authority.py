"""Where the operator's certificate authority is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM; as read from a store, possibly damaged."""

    certificate: bytes
    key: bytes = field(repr=False)


class AuthorityStore(Protocol):
    """Shared by all replicas. Errors of the API server pass through."""

    async def read(self) -> KeyPair | None:
        """The authority, or None if none has been made yet."""

    async def create(self, authority: KeyPair) -> bool:
        """Keep the authority if there is none; False if another replica was first."""

    async def publish(self, certificate: bytes) -> None:
        """Write the certificate where agents read it; a no-op if it is there."""
