"""The administrator's allow-list, as a file that may change while we run."""

from __future__ import annotations

import logging
from pathlib import Path

import yaml

from modelcache_operator.decide.allowed_sources import AllowList, parse_allow_list

_Stamp = tuple[int, int, int]
logger = logging.getLogger(__name__)


class AllowListFile:
    """Reads the file again when it has changed. Without a path, the default list.

    A file that cannot be read later on leaves the last good list in force and is logged once.

    Raises:
        ValueError: the file cannot be read at the start.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: _Stamp | None = None
        self._list = AllowList()
        if path is not None:
            self._stamp = _stamp(path)
            self._list = load_allow_list(path)

    def current(self) -> AllowList:
        """The list in force. Costs one stat; small enough for the event loop."""
        if self._path is None:
            return self._list
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._list = load_allow_list(self._path)
            except ValueError as error:
                logger.error("the allow-list is kept as it was: %s", error)  # noqa: TRY400
        return self._list


def load_allow_list(path: Path) -> AllowList:
    """The rules in a YAML or JSON file.

    Raises:
        ValueError: it cannot be read, or is not a list of rules.
    """
    try:
        return parse_allow_list(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
