"""What the engine counts, for the agent's metrics."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from modelcache_agent.fetch.egress import EgressBook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelcache_agent.fetch.job import FetchJob
    from modelcache_api.names import Reason


@dataclass(frozen=True, slots=True)
class FetchCounters:
    """A snapshot of totals since the engine was made."""

    requests: int = 0
    network_bytes: int = 0
    """Body bytes received, useful or not."""

    peer_bytes: int = 0
    """Of these, from other nodes."""

    refetched_bytes: int = 0
    """Body bytes thrown away or fetched again: broken parts, damaged or mismatching pieces."""

    verified_bytes: int = 0
    """Bytes that passed every check and entered a file's digest."""

    proved_bytes: int = 0
    """Bytes read back from disk on resumption."""

    connections: int = 0
    refreshed_grants: int = 0
    retries: Mapping[Reason, int] = field(default_factory=lambda: MappingProxyType({}))
    egress: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    """Body bytes by namespace and source, of what is still wanted."""


class CounterBoard:
    """Thread-safe totals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._retries: Counter[Reason] = Counter()
        self.egress = EgressBook()

    def add(self, name: str, amount: int = 1) -> None:
        """Add to the counter with this field name of FetchCounters."""
        with self._lock:
            self._totals[name] += amount

    def add_received(self, job: FetchJob, source: str, amount: int) -> None:
        """Count body bytes, whatever becomes of them: they are paid for."""
        self.add("network_bytes", amount)
        self.egress.add(job.uid, job.namespace, source, amount)

    def add_retry(self, reason: Reason) -> None:
        """Count one retry."""
        with self._lock:
            self._retries[reason] += 1

    def snapshot(self) -> FetchCounters:
        """All totals at one moment."""
        with self._lock:
            return FetchCounters(
                retries=MappingProxyType(dict(self._retries)),
                egress=self.egress.snapshot(),
                **self._totals,
            )
