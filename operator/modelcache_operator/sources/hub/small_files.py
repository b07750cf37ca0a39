"""Files that the hub keeps in git itself, and serves without a signed address.

Of a repository that needs a token the operator hands them over, because the token stays here.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError

# The hub takes no file above 10 MiB into git itself.
MAX_FILE_BYTES: Final = 16 * 1024 * 1024


def is_small(file: SourceFile) -> bool:
    """True if the operator may hand the file over."""
    return file.size_bytes <= MAX_FILE_BYTES


def refuse_large(file: SourceFile, authority: str) -> SourceError:
    """The error for a large file that only the token can read."""
    return SourceError(
        Reason.SOURCE_INVALID,
        f"{authority} gives no signed address for {quote(file.path)} ({file.size_bytes} bytes) "
        f"and serves it to the token alone, which never leaves the operator; it hands over up to "
        f"{MAX_FILE_BYTES} bytes itself: use an endpoint that signs, or one that needs no token",
    )


def check_body(file: SourceFile, body: bytes) -> None:
    """The bytes are those that the commit names.

    Raises:
        SourceError: SourceChanged.
    """
    if len(body) == file.size_bytes and _has_name(file, body):
        return
    raise SourceError(
        Reason.SOURCE_CHANGED,
        f"the hub serves other bytes for {quote(file.path)} than its commit names",
        retry_after_seconds=60.0,
    )


def _has_name(file: SourceFile, body: bytes) -> bool:
    if file.sha256 is not None:
        return hashlib.sha256(body).hexdigest() == file.sha256
    blob = hashlib.sha1(b"blob %d\0" % len(body), usedforsecurity=False)
    blob.update(body)
    return blob.hexdigest() == file.version_id


class RecentBodies:
    """Bodies that were handed over a moment ago, bounded in bytes: nodes ask at the same time."""

    def __init__(self, max_bytes: int, seconds: float, monotonic: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._monotonic = monotonic
        self._bodies: OrderedDict[Hashable, tuple[bytes, float]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> bytes | None:
        """The body of that key, if it is recent."""
        with self._lock:
            body, until = self._bodies.get(key, (None, 0.0))
        return body if until > self._monotonic() else None

    def put(self, key: Hashable, body: bytes) -> None:
        """Remember it; the oldest ones go."""
        with self._lock:
            old, _ = self._bodies.pop(key, (b"", 0.0))
            self._bodies[key] = (body, self._monotonic() + self._seconds)
            self._bytes += len(body) - len(old)
            while self._bytes > self._max_bytes:
                _, (gone, _) = self._bodies.popitem(last=False)
                self._bytes -= len(gone)
