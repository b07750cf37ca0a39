"""One agent for one store."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from modelcache_agent.tiers.errors import StoreInUseError


class StoreLock:
    """A flock held until `close` or the end of the process, however it ends.

    The file is never unlinked: whoever unlinks a lock file lets two owners hold two inodes. The
    kernel drops the lock of a dead owner, so there is no time-out and no stale lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock at once. Raises StoreInUseError if another process holds it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise StoreInUseError(
                f"the store {self._path.parent} is in use by another agent (process {owner}): "
                "run one agent per store"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def close(self) -> None:
        """Give the lock back; the file stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
