"""Brings one ModelCache closer to its spec."""

from __future__ import annotations

from dataclasses import dataclass

from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_operator.assignments import Assignment
from modelcache_operator.decide.cache_node_spec import choose_evictable
from modelcache_operator.decide.cache_status import (
    CacheFacts,
    make_cache_status,
    make_unreadable_status,
)
from modelcache_operator.decide.copies import CopyTally, tally_copies
from modelcache_operator.decide.eligibility import Demand
from modelcache_operator.decide.events import cache_events
from modelcache_operator.decide.placement import ALL_COPIES, PlacementPlan, Trouble, place
from modelcache_operator.decide.stuck import (
    PATIENCE_SECONDS,
    choose_movable,
    note_stuck,
    seconds_until_movable,
)
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
        if cache is None and self.world.unreadable.has_cache(key):
            return Requeue()
        if cache is None or cache.is_deleted:
            self._release(key)
            return Requeue()
        status = self._decide(cache)
        if await self.writer.put_cache_status(cache, status):
            self.events.publish(cache_events(cache, status.conditions))
        placed = self.memory.assignments.of(key)
        if placed is None:
            return Requeue()
        return Requeue(seconds_until_movable(placed.stuck_since, self.clock.monotonic()))

    def _decide(self, cache: ModelCacheView) -> ModelCacheStatus:
        unreadable, now = self.world.unreadable, self.clock.now()
        if unreadable.has_version(ObjectKey(cache.key.namespace, cache.spec.stable.model_version)):
            return make_unreadable_status(cache, now)
        assignments = self.memory.assignments
        named = find_named_version(cache, self.world)
        if held := find_held_version(cache.key, self.world, assignments):
            return make_cache_status(self._place(cache, named, held), now)
        placed = assignments.of(cache.key)
        if placed is None or placed.version not in unreadable.versions:
            self._release(cache.key)
        return make_cache_status(self._hold_nothing(cache, named), now)

    def _release(self, key: ObjectKey) -> None:
        self.memory.unsatisfied.discard(key)
        nodes = self.memory.assignments.drop(key)
        self.router.on_nodes_reassigned(nodes, frees_room=True)

    def _place(
        self, cache: ModelCacheView, named: ModelVersionView | None, held: ModelVersionView
    ) -> CacheFacts:
        # No await from here to the last line: two decisions must not promise the same room.
        assignments = self.memory.assignments
        before = assignments.of(cache.key) or Assignment(held.uid)
        now = stuck_since = self.clock.monotonic()
        if before.version != held.uid:
            before = self._begin_version(cache, held, before)
            # What does not fit has not begun: it need not wait before it moves.
            stuck_since -= PATIENCE_SECONDS
        books = self.memory.books.all()
        size, tier = held.status.size_bytes or 0, cache.spec.tier
        demand = Demand(held.uid, size, cache.spec.placement, tier)
        stuck = note_stuck(before.stuck_since, demand, before.nodes, books, stuck_since)
        trouble = Trouble(choose_movable(stuck, demand, books, now), before.left)
        plan = place(cache.uid, demand, before.nodes, books, trouble)
        evictable = choose_evictable(
            cache.uid,
            held.uid,
            plan.live,
            min_ready=cache.spec.placement.min_ready,
            evictable_now=before.evictable,
            books=books,
        )
        new = Assignment(
            held.uid,
            plan.nodes,
            evictable,
            tier,
            plan.slower,
            stuck_since={name: since for name, since in stuck.items() if name in plan.nodes},
            left=before.left | plan.left,
        )
        changed = assignments.put(cache.key, new)
        self._remember_shortage(cache, plan, new)
        tally = tally_copies(held.uid, plan.live, plan.wanted, books, tier)
        frees_room = not (before.nodes <= plan.nodes and before.evictable >= evictable)
        frees_room |= before.tier.speed > tier.speed or not before.slower >= plan.slower
        self.router.on_nodes_reassigned(changed, frees_room=frees_room)
        demanded = len(self.memory.demands.nodes_of(cache.key))
        return CacheFacts(cache, named, tally, plan.shortage, demanded)

    def _begin_version(
        self, cache: ModelCacheView, held: ModelVersionView, before: Assignment
    ) -> Assignment:
        """The nodes as they are, booked for the new version instead of the old one."""
        begun = Assignment(held.uid, before.nodes, tier=before.tier, slower=before.slower)
        changed = self.memory.assignments.put(cache.key, begun)
        self.router.on_nodes_reassigned(changed, frees_room=True)
        return begun

    def _remember_shortage(
        self, cache: ModelCacheView, plan: PlacementPlan, placed: Assignment
    ) -> None:
        wants_any_node = cache.spec.placement.copies == ALL_COPIES
        if plan.shortage is not None or placed.stuck_since or wants_any_node:
            self.memory.unsatisfied.add(cache.key)
        else:
            self.memory.unsatisfied.discard(cache.key)

    def _hold_nothing(self, cache: ModelCacheView, named: ModelVersionView | None) -> CacheFacts:
        copies = cache.spec.placement.copies
        wanted = copies if isinstance(copies, int) else 0
        demanded = len(self.memory.demands.nodes_of(cache.key))
        return CacheFacts(cache, named, CopyTally(wanted, (), cache.spec.tier), None, demanded)
