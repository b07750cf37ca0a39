"""Bytes that were given up. They leave the disk when their last reader closes them."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

from modelcache_agent.tiers.durable import remove_anything
from modelcache_agent.tiers.usage import is_open_elsewhere

_log = logging.getLogger(__name__)


class ReleasedFiles:
    """The folder of given-up files. Readers keep what they hold; nobody new can open it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: set[str] = set()

    def take(self, path: Path) -> None:
        """Move a blob or a tree in; one that is gone already is fine."""
        for number in itertools.count():
            target = self._folder / f"{path.name}-{number}"
            if not target.exists():
                break
        try:
            path.rename(target)
        except FileNotFoundError:
            return

    def reap(self) -> int:
        """Remove what nobody holds open; returns the bytes that are still held.

        Trees go first: their names are links to the blobs, whose own names remain until then.
        What the disk refuses to remove counts as held and is tried again by the next call.
        """
        pending = 0
        held: set[int] = set()
        for path in sorted(self._folder.iterdir(), key=lambda entry: not entry.is_dir()):
            is_file = path.is_file() and not path.is_symlink()
            if not (is_file and is_open_elsewhere(path)) and self._remove(path):
                continue
            if is_file:
                found = path.lstat()
                if found.st_ino not in held and found.st_nlink == 1:
                    held.add(found.st_ino)
                    pending += found.st_size
        return pending

    def _remove(self, path: Path) -> bool:
        try:
            remove_anything(path)
        except OSError as error:
            if path.name not in self._told:
                self._told.add(path.name)
                _log.warning("cannot remove %r: %s", path.name, error.strerror)
            return False
        self._told.discard(path.name)
        return True
