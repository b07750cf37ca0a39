"""The administrator's files, which may change while we run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

import yaml

from modelcache_operator.decide.allowed_sources import AllowList, parse_allow_list
from modelcache_operator.decide.fleet_limits import FleetLimits, parse_fleet_limits
from modelcache_operator.decide.quota import Limits, parse_default_quota

_Stamp = tuple[int, int, int]
_T = TypeVar("_T")
logger = logging.getLogger(__name__)


class ReloadedFile(Generic[_T]):
    """Reads the file again when it has changed. Without a path, what an empty one means.

    `parse` gets the parsed document and raises ValueError. A file that cannot be read later on
    leaves what was read last in force and is logged once.

    Raises:
        ValueError: the file cannot be read at the start.
    """

    def __init__(self, path: Path | None, parse: Callable[[object], _T], what: str) -> None:
        self._path = path
        self._parse = parse
        self._what = what
        self._stamp: _Stamp | None = None if path is None else _stamp(path)
        self._value = parse(None) if path is None else self._load(path)

    def current(self) -> _T:
        """What is in force. Costs one stat; small enough for the event loop."""
        if self._path is None:
            return self._value
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._value = self._load(self._path)
            except ValueError as error:
                logger.error("%s: kept as it was: %s", self._what, error)  # noqa: TRY400
        return self._value

    def _load(self, path: Path) -> _T:
        try:
            return self._parse(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ValueError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """Which sources are allowed, what the fleet may take from them, what namespaces may hold."""

    allow_list: ReloadedFile[AllowList]
    limits: ReloadedFile[FleetLimits]
    default_quota: ReloadedFile[Limits]

    @classmethod
    def read(
        cls, source_policy: Path | None, limits: Path | None, default_quota: Path | None = None
    ) -> Self:
        """Without a path, what an empty file means. Raises ValueError with the option."""
        return cls(
            _read("--source-policy", source_policy, parse_allow_list),
            _read("--limits", limits, parse_fleet_limits),
            _read("--default-quota", default_quota, parse_default_quota),
        )


def _read(option: str, path: Path | None, parse: Callable[[object], _T]) -> ReloadedFile[_T]:
    try:
        return ReloadedFile(path, parse, option)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
