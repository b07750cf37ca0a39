"""What goes into the engine and what comes out.

Errors:
    FetchCancelledError       the job was dropped or the engine closed; what is on disk can be
                              resumed
    GrantUnavailableError     raised by a GrantProvider: there is no leave to read the file
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from modelcache_api.manifest import ContentFile

if TYPE_CHECKING:
    from pathlib import Path

    from modelcache_api.manifest import SourceFile
    from modelcache_api.names import Reason
    from modelcache_api.wire import GrantedFile


@dataclass(frozen=True, slots=True)
class FetchFile:
    """One file of the source manifest, with its content where that is known."""

    source: SourceFile
    expected: ContentFile | None = None


@dataclass(frozen=True, slots=True)
class FetchJob:
    """One ModelVersion to bring to this node.

    `directory` is `partial/<uid>/` on the store's file system; the engine creates it and is its
    only writer while the job runs. The caller has reserved the bytes.
    """

    uid: str
    source_digest: str
    files: tuple[FetchFile, ...]
    directory: Path
    ca_bundle: str | None = None
    """PEM of the authorities to trust instead of the system's."""

    namespace: str = ""
    """Whom the received bytes are counted for."""

    through_memory: bool = False
    """Leave what is written in the page cache, where the caller has room for all of it."""

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(file.source.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A complete, verified, fsynced partial file; `partial_path` is the caller's to link."""

    path: str
    size_bytes: int
    sha256: str
    pieces: tuple[str, ...]
    partial_path: Path

    @property
    def content(self) -> ContentFile:
        """The file as a content manifest lists it."""
        return ContentFile(self.path, self.size_bytes, self.sha256, self.pieces)


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """Why a job stopped. `message` is one bounded sentence without secrets or response bodies."""

    reason: Reason
    path: str | None
    message: str
    retry_after_seconds: float | None
    """When to submit the job again; None: not before the source, its grant or the spec changes."""


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """Files that are finished, in the job's order; all of them if `failure` is None."""

    uid: str
    files: tuple[FetchedFile, ...]
    failure: FetchFailure | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is."""

    uid: str
    verified_bytes: int
    total_bytes: int
    finished_files: int
    total_files: int


class GrantProvider(Protocol):
    """Where the engine gets leave to read a file. Called on the event loop."""

    async def current(self, uid: str, path: str) -> GrantedFile:
        """A grant for the file, from a cache if it is still good.

        Raises:
            GrantUnavailableError: there is none.
        """
        ...

    async def refresh(self, uid: str, path: str) -> GrantedFile:
        """A newly signed grant, asked for after 401, 403 or expiry.

        Raises:
            GrantUnavailableError: there is none.
        """
        ...


class FetchCancelledError(Exception):
    """The job was cancelled; partial files and their journals are kept."""


class GrantUnavailableError(Exception):
    """No leave to read: the reason, one sentence, and when to ask again (None: not by itself)."""

    def __init__(
        self, reason: Reason, message: str, retry_after_seconds: float | None = 30.0
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
