"""Brings one ModelCache closer to its spec."""

from __future__ import annotations

from dataclasses import dataclass

from modelcache_operator.assignments import Assignment
from modelcache_operator.decide.cache_node_spec import choose_evictable
from modelcache_operator.decide.cache_status import CacheFacts, make_cache_status
from modelcache_operator.decide.copies import CopyTally, tally_copies
from modelcache_operator.decide.eligibility import Demand
from modelcache_operator.decide.events import cache_events
from modelcache_operator.decide.placement import ALL_COPIES, PlacementPlan, place
from modelcache_operator.decide.world import ModelCacheView, ModelVersionView, ObjectKey
from modelcache_operator.held_version import find_held_version, find_named_version
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.cluster import ClusterWriter
from modelcache_operator.ports.telling import EventSink
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.routing import Router
from modelcache_operator.workqueue import Requeue


@dataclass(frozen=True, slots=True)
class CacheReconciler:
    """Places, then reports what the live nodes say. The nodes' own keys do the writing."""

    world: ObservedWorld
    memory: Memory
    router: Router
    writer: ClusterWriter
    events: EventSink
    clock: Clock

    async def reconcile(self, key: ObjectKey) -> Requeue:
        """Safe to call at any time, any number of times."""
        cache = self.world.model_cache(key)
        if cache is None or cache.is_deleted:
            self._release(key)
            return Requeue()
        named = find_named_version(cache, self.world)
        held = find_held_version(key, self.world, self.memory.assignments)
        facts = self._place(cache, named, held) if held else self._hold_nothing(cache, named)
        status = make_cache_status(facts, self.clock.now())
        if await self.writer.put_cache_status(cache, status):
            self.events.publish(cache_events(cache, status.conditions))
        return Requeue()

    def _release(self, key: ObjectKey) -> None:
        self.memory.unsatisfied.discard(key)
        nodes = self.memory.assignments.drop(key)
        self.router.on_nodes_reassigned(nodes, frees_room=True)

    def _place(
        self, cache: ModelCacheView, named: ModelVersionView | None, held: ModelVersionView
    ) -> CacheFacts:
        # No await from here to the last line: two decisions must not promise the same room.
        assignments, books = self.memory.assignments, self.memory.books.all()
        before = assignments.of(cache.key)
        demand = Demand(held.uid, held.status.size_bytes or 0, cache.spec.placement)
        plan = place(cache.uid, demand, before.nodes if before else (), books)
        evictable = choose_evictable(
            cache.uid,
            held.uid,
            plan.live,
            min_ready=cache.spec.placement.min_ready,
            evictable_now=before.evictable if before else frozenset(),
            books=books,
        )
        changed = assignments.put(cache.key, Assignment(held.uid, plan.nodes, evictable))
        self._remember_shortage(cache, plan)
        tally = tally_copies(held.uid, plan.live, plan.wanted, books)
        frees_room = before is not None and not (
            before.nodes <= plan.nodes and before.evictable >= evictable
        )
        self.router.on_nodes_reassigned(changed, frees_room=frees_room)
        demanded = len(self.memory.demands.nodes_of(cache.key))
        return CacheFacts(cache, named, tally, plan.shortage, demanded)

    def _remember_shortage(self, cache: ModelCacheView, plan: PlacementPlan) -> None:
        wants_any_node = cache.spec.placement.copies == ALL_COPIES
        if plan.shortage is not None or wants_any_node:
            self.memory.unsatisfied.add(cache.key)
        else:
            self.memory.unsatisfied.discard(cache.key)

    def _hold_nothing(self, cache: ModelCacheView, named: ModelVersionView | None) -> CacheFacts:
        self._release(cache.key)
        copies = cache.spec.placement.copies
        wanted = copies if isinstance(copies, int) else 0
        demanded = len(self.memory.demands.nodes_of(cache.key))
        return CacheFacts(cache, named, CopyTally(wanted, ()), None, demanded)
