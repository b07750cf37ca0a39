"""Things that are not ours or not right: moved aside, counted, reported, never trusted."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from pathlib import Path

from modelcache_agent.tiers.durable import allocated_bytes, sync_directory

_log = logging.getLogger(__name__)


class Quarantine:
    """The quarantine folder. Nothing in it is ever deleted by the agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, path: Path, why: str) -> bool:
        """Move the thing in; False if it cannot be moved, as a mount point cannot."""
        target = next(name for name in self._names(path.name) if not name.exists())
        try:
            path.rename(target)
        except FileNotFoundError:
            return True
        except OSError as error:
            _log.error("cannot quarantine %r (%s): %s", str(path), why, error.strerror)
            return False
        sync_directory(self._folder)
        _log.warning("quarantined %r as %r: %s", str(path), target.name, why)
        return True

    def find(self, inode: int) -> Path | None:
        """The file with this inode, or None."""
        for path in self._folder.iterdir():
            found = path.lstat()
            if found.st_ino == inode and stat.S_ISREG(found.st_mode):
                return path
        return None

    def size_bytes(self) -> int:
        """Bytes on the device."""
        return allocated_bytes(self._folder)

    def count(self) -> int:
        """How many things are in it."""
        return sum(1 for _ in self._folder.iterdir())

    def _names(self, name: str) -> Iterator[Path]:
        safe = name[:200]
        yield self._folder / safe
        number = 1
        while True:
            yield self._folder / f"{safe}.{number}"
            number += 1
