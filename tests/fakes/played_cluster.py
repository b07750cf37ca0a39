"""The API server as one agent sees it, in memory; it can be away, and remembers the order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from modelcache_agent.ports.cluster import CacheNodeView, ClusterError
from modelcache_api.v1alpha1.cache_node import (
    CacheNodeSpec,
    CacheNodeStatus,
    CacheRef,
    EntrySpec,
)


@dataclass
class PlayedCluster:
    """Implements the port. `on_labels` is called with (before, after) at each change."""

    node_uid: str = "node-1"
    is_away: bool = False
    loses_answers: bool = False
    labels: frozenset[str] = frozenset()
    in_memory: frozenset[str] = frozenset()
    on_device: frozenset[str] = frozenset()
    status: CacheNodeStatus = field(default_factory=CacheNodeStatus)
    entries: tuple[EntrySpec, ...] = ()
    caches: tuple[CacheRef, ...] = ()
    status_writes: list[CacheNodeStatus] = field(default_factory=list)
    label_writes: list[frozenset[str]] = field(default_factory=list)
    leases: int = 0
    on_labels: Callable[[frozenset[str], frozenset[str]], None] = lambda _before, _after: None
    on_memory: Callable[[frozenset[str], frozenset[str]], None] = lambda _before, _after: None
    on_card: Callable[[frozenset[str], frozenset[str]], None] = lambda _before, _after: None
    _views: asyncio.Queue = field(default_factory=asyncio.Queue)

    def want(self, *entries: EntrySpec, caches: Mapping[str, str] | None = None) -> None:
        """What the operator writes; `caches` are uids by namespace/name."""
        self.entries = entries
        if caches is not None:
            self.caches = tuple(
                CacheRef(namespace=key.split("/")[0], name=key.split("/")[1], stable_uid=uid)
                for key, uid in caches.items()
            )
        self.nudge()

    def nudge(self) -> None:
        spec = CacheNodeSpec(node_uid=self.node_uid, entries=self.entries, caches=self.caches)
        self._views.put_nowait(CacheNodeView("cache-node-1", spec, self.status))

    def vanish(self) -> None:
        self._views.put_nowait(None)

    def entry(self, uid: str):
        return next((entry for entry in self.status.entries if entry.uid == uid), None)

    def state(self, uid: str) -> tuple[str, str] | None:
        entry = self.entry(uid)
        return None if entry is None else (str(entry.state), entry.reason)

    @asynccontextmanager
    async def watch(self):
        async def views():
            while True:
                yield await self._views.get()

        yield views()

    async def apply_status(self, cache_node_uid, status) -> None:
        self._answer()
        assert cache_node_uid == "cache-node-1"
        self.status = status
        self.status_writes.append(status)

    async def apply_labels(
        self, keys, in_memory=frozenset(), on_device=frozenset()
    ) -> frozenset[str]:
        if not self.loses_answers:
            self._answer()
        if keys != self.labels:
            self.on_labels(self.labels, keys)
            self.label_writes.append(keys)
        if in_memory != self.in_memory:
            self.on_memory(self.in_memory, in_memory)
        if on_device != self.on_device:
            self.on_card(self.on_device, on_device)
        self.labels = keys
        self.in_memory = in_memory
        self.on_device = on_device
        if self.loses_answers:
            raise ClusterError("the answer was lost")
        return keys

    async def renew_lease(self) -> None:
        self._answer()
        self.leases += 1

    def _answer(self) -> None:
        if self.is_away:
            raise ClusterError("the API server is away")
