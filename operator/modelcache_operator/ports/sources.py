"""Object stores and hubs as the operator sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from modelcache_api.manifest import SourceFile, SourceManifest
from modelcache_api.names import Reason
from modelcache_operator.decide.world import ModelVersionView


class SourceError(Exception):
    """A source cannot be resolved or signed now.

    `retry_after_seconds` is None when only a changed object, Secret or allow-list can help; the
    caller then retries slowly, because the outside world may change too.
    """

    def __init__(
        self, reason: Reason, message: str, *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class SignedFile:
    """A short-lived URL for one file. `expires_at` is in Unix seconds.

    `url` None: the file is small, and nobody but the operator may read it; see `Sources.read`.
    """

    path: str
    url: str | None
    headers: tuple[tuple[str, str], ...]
    expires_at: float


@dataclass(frozen=True, slots=True)
class SignedPage:
    """URLs for some files of one version, and the CA bundle (PEM) that their endpoint needs."""

    files: tuple[SignedFile, ...]
    ca_bundle: str | None = None


class Sources(Protocol):
    """Lists and signs. Reads Secrets and CA bundles anew on each call."""

    async def resolve(
        self, version: ModelVersionView, revision: str | None = None, /
    ) -> SourceManifest:
        """The selected files with sizes and identities, as they are now.

        With a revision, that of an earlier manifest, as they were then, if the source keeps that.

        Raises:
            SourceError: with one reason.
        """

    async def sign(
        self,
        version: ModelVersionView,
        files: Sequence[SourceFile],
        revision: str | None = None,
        /,
    ) -> SignedPage:
        """One short-lived URL for each file, in the same order. `revision` is the manifest's.

        Raises:
            SourceError: with one reason.
        """

    async def read(
        self, version: ModelVersionView, file: SourceFile, revision: str | None = None, /
    ) -> bytes:
        """The bytes of a file that has no URL.

        Raises:
            SourceError: with one reason.
        """

    async def read_part(
        self,
        version: ModelVersionView,
        file: SourceFile,
        start: int,
        end: int,
        revision: str | None = None,
        /,
    ) -> bytes:
        """Bytes [start, end) of a file as it was listed; a few MiB at most.

        Raises:
            SourceError: with one reason.
        """

    async def close(self) -> None:
        """End what runs."""
