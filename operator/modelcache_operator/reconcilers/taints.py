"""Lifts the taint that keeps pods off a fresh node until its agent is ready."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from modelcache_operator.decide.eligibility import Demand
from modelcache_operator.decide.node_taint import has_agent_taint, may_lift_taint
from modelcache_operator.decide.placement import ALL_COPIES
from modelcache_operator.decide.world import NodeName, Uid
from modelcache_operator.held_version import find_held_version
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.cluster import ClusterWriter
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.workqueue import Requeue

_LOOK_AGAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class TaintWarden:
    """One look at a node, at the end of the node's own step."""

    world: ObservedWorld
    memory: Memory
    writer: ClusterWriter
    clock: Clock
    timeout_seconds: float
    _seen_at: dict[NodeName, tuple[Uid, float]] = field(default_factory=dict)

    async def look(self, name: NodeName) -> Requeue:
        """Lift the taint if its time has come; look again while it is there."""
        book = self.memory.books.all().get(name)
        if book is None or not has_agent_taint(book):
            self.forget(name)
            return Requeue()
        uid, seen_at = self._seen_at.get(name, (book.node.uid, self.clock.monotonic()))
        if uid != book.node.uid:
            seen_at = self.clock.monotonic()
        self._seen_at[name] = (book.node.uid, seen_at)
        waited = self.clock.monotonic() - seen_at
        if may_lift_taint(book, self._everywhere(), waited, self.timeout_seconds):
            await self.writer.lift_taint(book.node)
        return Requeue(_LOOK_AGAIN_SECONDS)

    def forget(self, name: NodeName) -> None:
        """The node has no such taint, or is gone."""
        self._seen_at.pop(name, None)

    def _everywhere(self) -> Iterator[Demand]:
        """The ModelCaches with a copy on every node that matches."""
        for cache in self.world.model_caches():
            if cache.is_deleted or cache.spec.placement.copies != ALL_COPIES:
                continue
            version = find_held_version(cache.key, self.world, self.memory.assignments)
            if version is not None:
                size = version.status.size_bytes or 0
                yield Demand(version.uid, size, cache.spec.placement)
