"""What the engine counts, for the agent's metrics."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelcache_api.names import Reason


@dataclass(frozen=True, slots=True)
class FetchCounters:
    """A snapshot of totals since the engine was made. All but `retries` are plain numbers."""

    requests: int = 0
    network_bytes: int = 0
    """Body bytes received, useful or not."""

    refetched_bytes: int = 0
    """Body bytes thrown away or fetched again: broken parts, damaged or mismatching pieces."""

    verified_bytes: int = 0
    """Bytes that passed every check and entered a file's digest."""

    proved_bytes: int = 0
    """Bytes read back from disk on resumption."""

    connections: int = 0
    refreshed_grants: int = 0
    retries: Mapping[Reason, int] = field(default_factory=lambda: MappingProxyType({}))


class CounterBoard:
    """Thread-safe totals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._retries: Counter[Reason] = Counter()

    def add(self, name: str, amount: int = 1) -> None:
        """Add to the counter with this field name of FetchCounters."""
        with self._lock:
            self._totals[name] += amount

    def add_retry(self, reason: Reason) -> None:
        """Count one retry."""
        with self._lock:
            self._retries[reason] += 1

    def snapshot(self) -> FetchCounters:
        """All totals at one moment."""
        with self._lock:
            return FetchCounters(retries=MappingProxyType(dict(self._retries)), **self._totals)
