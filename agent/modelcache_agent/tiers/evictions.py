"""Which ModelVersions were evicted, so that a restart does not fetch them again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from modelcache_agent.tiers.durable import write_atomically

_log = logging.getLogger(__name__)


class EvictionMarks:
    """A small set on disk. A damaged file counts as empty: the worst that follows is a fetch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._uids: frozenset[str] = frozenset()

    @property
    def uids(self) -> frozenset[str]:
        """The marked versions."""
        return self._uids

    def load(self) -> None:
        """Read what an earlier agent wrote."""
        try:
            self._uids = frozenset(str(uid) for uid in json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return
        except (ValueError, TypeError):
            _log.warning("the list of evicted versions is damaged and was dropped")

    def add(self, uids: Iterable[str]) -> None:
        """Mark versions, durably."""
        self._store(self._uids.union(uids))

    def remove(self, uids: Iterable[str]) -> None:
        """Take marks away."""
        self._store(self._uids.difference(uids))

    def keep_only(self, uids: Iterable[str]) -> None:
        """Drop all marks but these."""
        self._store(self._uids.intersection(uids))

    def _store(self, uids: frozenset[str]) -> None:
        if uids != self._uids:
            write_atomically(self._path, json.dumps(sorted(uids)).encode())
            self._uids = uids
