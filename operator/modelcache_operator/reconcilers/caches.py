"""Brings one ModelCache closer to its spec."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcache_api.names import Retention
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_operator.assignments import Assignment
from modelcache_operator.decide.cache_node_spec import choose_evictable
from modelcache_operator.decide.cache_status import (
    BesideFacts,
    CacheFacts,
    make_cache_status,
    make_unreadable_status,
)
from modelcache_operator.decide.canary import describe_standstill
from modelcache_operator.decide.copies import CopyTally, tally_copies
from modelcache_operator.decide.eligibility import Demand
from modelcache_operator.decide.events import cache_events, weight_in_force
from modelcache_operator.decide.placement import ALL_COPIES, Trouble
from modelcache_operator.decide.quota import effective_priority
from modelcache_operator.decide.quota_placement import place_within
from modelcache_operator.decide.stuck import (
    PATIENCE_SECONDS,
    choose_movable,
    note_stuck,
    seconds_until_movable,
)
from modelcache_operator.decide.world import (
    ModelCacheView,
    ModelVersionView,
    NodeName,
    ObjectKey,
)
from modelcache_operator.gate_keeper import GateKeeper
from modelcache_operator.held_version import (
    find_held_version,
    find_named_canary,
    find_named_version,
    find_unreadable_name,
)
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.cluster import ClusterWriter
from modelcache_operator.ports.telling import EventSink
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.quotas import Quotas
from modelcache_operator.rolling import NO_COPIES, Roller
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
    roller: Roller
    gates: GateKeeper
    quotas: Quotas

    async def reconcile(self, key: ObjectKey) -> Requeue:
        """Safe to call at any time, any number of times."""
        cache = self.world.model_cache(key)
        if cache is None and self.world.unreadable.has_cache(key):
            return Requeue()
        if cache is None or cache.is_deleted:
            self._release(key)
            return Requeue()
        status, look_again = self._decide(cache)
        is_back = weight_in_force(status) < weight_in_force(cache.status)
        if await self.writer.put_cache_status(cache, status):
            self.events.publish(cache_events(cache, status))
            if status.traffic != cache.status.traffic:
                self.router.on_weight(self._nodes_of(key), is_back=is_back)
        written = self.world.model_cache(key)
        if written is not None:
            self.router.on_decided(written, is_back=is_back)
            self.gates.note(written)
        return Requeue(look_again)

    def _decide(self, cache: ModelCacheView) -> tuple[ModelCacheStatus, float | None]:
        now, assignments = self.clock.now(), self.memory.assignments
        if name := find_unreadable_name(cache, self.world):
            self.memory.unsatisfied.discard(cache.key)
            self._stop_withholding(cache.key)
            return make_unreadable_status(cache, name, now), None
        named = find_named_version(cache, self.world)
        stable = find_held_version(cache.key, self.world, assignments)
        placed = assignments.of(cache.key)
        is_unknown = placed is not None and placed.version in self.world.unreadable.versions
        if stable is not None:
            facts, look_again = self._place(cache, named, stable)
        elif is_unknown:
            facts, look_again = self._hold_nothing(cache, named), None
        else:
            facts, look_again = self._hold_what_is_there(cache, named)
        return make_cache_status(facts, now), look_again

    def _nodes_of(self, key: ObjectKey) -> frozenset[NodeName]:
        placed = self.memory.assignments.of(key)
        return (placed.everywhere if placed else frozenset()) | self.memory.demands.nodes_of(key)

    def _release(self, key: ObjectKey) -> None:
        self.memory.forget(key)
        self._tell_who_waited()
        self.roller.times.forget(key)
        nodes = self.memory.assignments.drop(key)
        self.router.on_nodes_reassigned(nodes, frees_room=True)
        self.router.on_charges((key.namespace,))

    def _put(self, key: ObjectKey, before: Assignment, new: Assignment) -> None:
        changed = self.memory.assignments.put(key, new)
        frees_room = not (before.nodes <= new.nodes and before.evictable >= new.evictable)
        frees_room |= not before.everywhere <= new.everywhere or before.held != new.held
        frees_room |= before.tier.speed > new.tier.speed or not before.slower >= new.slower
        is_turn = before.version != new.version
        self.router.on_nodes_reassigned(changed, frees_room=frees_room, is_turn=is_turn)
        if changed:
            self.router.on_charges((key.namespace,))

    def _place(
        self, cache: ModelCacheView, named: ModelVersionView | None, stable: ModelVersionView
    ) -> tuple[CacheFacts, float | None]:
        # No await from here to the last line: two decisions must not promise the same room.
        found = self.memory.assignments.of(cache.key) or Assignment(stable.uid)
        now = stuck_since = self.clock.monotonic()
        if found.version != stable.uid:
            # What does not fit has not begun: it need not wait before it moves.
            stuck_since -= PATIENCE_SECONDS
        before = self.roller.turn(cache, stable, found)
        self._put(cache.key, found, before)
        books = self.memory.books.all()
        placement, is_still = cache.spec.placement, self.roller.is_under_way(cache, before)
        size, tier = stable.status.size_bytes or 0, cache.spec.tier
        account = self.quotas.account(cache, stable.uid)
        priority = effective_priority(account.limits, cache.spec)
        demand = Demand(stable.uid, size, placement, tier, priority)
        stuck = note_stuck(before.stuck_since, demand, before.nodes, books, stuck_since)
        movable = frozenset() if is_still else choose_movable(stuck, demand, books, now)
        trouble = Trouble(movable, before.left)
        plan = place_within(
            account, cache.uid, demand, before.nodes, books, trouble, is_still=is_still
        )
        wanted, shortage, placed = plan.wanted, plan.shortage, len(plan.live - plan.slower)
        if is_still and shortage is None and placed < wanted:
            shortage = describe_standstill(placed, wanted, tier)
        is_pinned = cache.spec.retention is Retention.PINNED and account.refusal is None
        tally = tally_copies(stable.uid, plan.live, wanted, books, tier)
        chosen = frozenset[NodeName]()
        if not is_still and not is_pinned:
            chosen = choose_evictable(
                cache.uid,
                stable.uid,
                plan.live,
                min_ready=cache.spec.placement.min_ready,
                evictable_now=before.evictable,
                books=books,
            )
        evictable, told_in = self._withhold(cache.key, chosen, before.evictable, tally, now)
        new = replace(
            before,
            nodes=plan.nodes,
            evictable=evictable,
            tier=tier,
            slower=plan.slower,
            stuck_since={name: since for name, since in stuck.items() if name in plan.nodes},
            left=before.left | plan.left,
            priority=priority,
            is_pinned=is_pinned,
        )
        self._put(cache.key, before, new)
        beside, look_again, is_canary_short = self._place_beside(cache, new, tally.ready)
        is_short = is_canary_short or plan.shortage is not None or bool(stuck.keys() & plan.nodes)
        self._remember_shortage(cache, is_short=is_short)
        movable_in = seconds_until_movable(new.stuck_since, now)
        facts = CacheFacts(cache, named, tally, shortage, self._count_demanded(cache.key), beside)
        return facts, _first(movable_in, told_in, look_again)

    def _withhold(
        self,
        key: ObjectKey,
        chosen: frozenset[NodeName],
        before: frozenset[NodeName],
        tally: CopyTally,
        now: float,
    ) -> tuple[frozenset[NodeName], float | None]:
        """Those of the chosen copies that may be given up already, and seconds until the others.

        They are told together: once none of those that withhold any fills, after two minutes, or
        sooner when somebody lacks room. An agent that lacks room hears at once what is on its node.
        """
        if chosen <= before:
            self._stop_withholding(key)
            return chosen, None
        left = self.memory.withhold(key, now, is_filling=tally.furthest is not None)
        self._tell_who_waited()
        if left is None:
            return chosen, None
        return chosen & (before | self.memory.short_nodes), left

    def _stop_withholding(self, key: ObjectKey) -> None:
        self.memory.withheld.pop(key, None)
        self._tell_who_waited()

    def _tell_who_waited(self) -> None:
        memory = self.memory
        if memory.withheld and not memory.is_filling(self.clock.monotonic()):
            self.router.look_at_withheld(tuple(memory.withheld))

    def _place_beside(
        self, cache: ModelCacheView, before: Assignment, stable_ready: int
    ) -> tuple[BesideFacts, float | None, bool]:
        """Canary and held versions, once the stable one has its nodes. True if room is short."""
        roller = self.roller
        new, copies = roller.place_canary(cache, roller.hold(cache, before))
        if roller.is_under_way(cache, new):
            new = replace(new, evictable=frozenset())
        self._put(cache.key, before, new)
        verdict = roller.decide(cache, copies, stable_ready, has_stable=bool(new.nodes))
        facts = BesideFacts(
            canary=find_named_canary(cache, self.world),
            verdict=verdict,
            is_resident=copies.is_resident,
            held=roller.report(cache, new),
            route=self.memory.traffic.verdict_of(cache),
        )
        look_again = _first(verdict.look_again if verdict else None, roller.look_again(cache, new))
        return facts, look_again, copies.shortage is not None

    def _remember_shortage(self, cache: ModelCacheView, *, is_short: bool) -> None:
        """Room would matter: what others may give up is told without waiting."""
        memory, key = self.memory, cache.key
        if cache.spec.placement.copies == ALL_COPIES:
            memory.everywhere.add(key)
        else:
            memory.everywhere.discard(key)
        if not is_short:
            memory.unsatisfied.discard(key)
        elif key not in memory.unsatisfied:
            memory.unsatisfied.add(key)
            self.router.look_at_withheld(memory.withheld)

    def _hold_what_is_there(
        self, cache: ModelCacheView, named: ModelVersionView | None
    ) -> tuple[CacheFacts, float | None]:
        """No stable version may be held: what is on nodes stays for a while, and nothing comes."""
        if (found := self.memory.assignments.of(cache.key)) is None:
            return self._hold_nothing(cache, named), None
        new = self.roller.turn(cache, None, found)
        if new.held:
            self._put(cache.key, found, new)
        else:
            self._release(cache.key)
        return self._hold_nothing(cache, named), self.roller.look_again(cache, new)

    def _hold_nothing(self, cache: ModelCacheView, named: ModelVersionView | None) -> CacheFacts:
        self.memory.unsatisfied.discard(cache.key)
        self._stop_withholding(cache.key)
        copies, placed = cache.spec.placement.copies, self.memory.assignments.of(cache.key)
        wanted = copies if isinstance(copies, int) else 0
        beside = BesideFacts(
            canary=find_named_canary(cache, self.world),
            verdict=self.roller.decide(cache, NO_COPIES, 0, has_stable=False),
            held=self.roller.report(cache, placed) if placed is not None else (),
            route=self.memory.traffic.verdict_of(cache),
        )
        demanded = self._count_demanded(cache.key)
        nothing = CopyTally(wanted, (), cache.spec.tier)
        return CacheFacts(cache, named, nothing, None, demanded, beside)

    def _count_demanded(self, key: ObjectKey) -> int:
        return len(self.memory.demands.nodes_of(key))


def _first(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)
