"""One ModelCache after the other is placed, as the operator does with what was applied. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from modelcache_api.names import Priority, Reason, Retention, Tier
from modelcache_cli.capacity.fit import (
    Beside,
    Fit,
    NodeLoad,
    PlacedCache,
    PlannedWorld,
    QuotaLoad,
    Refused,
    SizedVersion,
    TierLoad,
)
from modelcache_operator.decide.canary import CanaryWish, place_canary
from modelcache_operator.decide.eligibility import Demand
from modelcache_operator.decide.node_book import NodeBook, make_node_book
from modelcache_operator.decide.placement import PlacementPlan, Trouble
from modelcache_operator.decide.quota import (
    Account,
    Holding,
    Item,
    effective_priority,
    make_account,
    sum_charges,
)
from modelcache_operator.decide.quota_placement import limit_canary, place_within
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.world import ModelCacheView, NodeName, ObjectKey, Uid

_NOWHERE: frozenset[NodeName] = frozenset()


def make_fit(world: PlannedWorld) -> Fit:
    """Place everything. What is there keeps its nodes, and its part of the quota."""
    draft = _Draft(world)
    return Fit(
        tuple([draft.place(cache) for cache in world.caches]),
        tuple(draft.load(planned.node.name) for planned in world.nodes),
        tuple(draft.list_quotas()),
    )


@dataclass(frozen=True, slots=True)
class _Copy:
    """One version of one ModelCache on one node. `yields` may be given up for its successor."""

    version: SizedVersion
    tier: Tier
    priority: Priority
    yields: bool = False


class _Draft:
    """The books of all nodes and namespaces while the plan is made."""

    def __init__(self, world: PlannedWorld) -> None:
        self._world = world
        self._nodes = {planned.node.name: planned for planned in world.nodes}
        self._copies: dict[NodeName, dict[tuple[ObjectKey, Uid], _Copy]] = {
            name: {} for name in self._nodes
        }
        self._holdings: dict[tuple[ObjectKey, Uid], Holding] = {}
        self._books: dict[NodeName, NodeBook] = {name: self._book(name) for name in self._nodes}
        for cache in world.caches:
            self._put_present(cache)

    def place(self, cache: ModelCacheView) -> PlacedCache:
        """The ModelCache with its canary, and what it holds of its predecessor."""
        name, key = cache.spec.stable.model_version, cache.key
        version = self._find(cache, name)
        if version is None:
            return _refuse_unknown(cache, name)
        demand = Demand(
            version.uid,
            version.size_bytes,
            cache.spec.placement,
            cache.spec.tier,
            self._priority(cache),
        )
        before = self._world.assigned.get(key, _NOWHERE) & self._nodes.keys()
        account = self._account(cache, version)
        plan = place_within(account, cache.uid, demand, before, self._books, Trouble())
        self._put(cache, version, plan.nodes, plan.slower)
        return PlacedCache(
            key,
            version.key,
            version.size_bytes,
            tuple(sorted(plan.nodes)),
            plan.wanted,
            cache.spec.tier,
            _refused(plan.shortage),
            self._place_canary(cache, version, plan),
            self._tell_held(cache),
        )

    def load(self, name: NodeName) -> NodeLoad:
        """A node as it is in the end."""
        book = self._books[name]
        faster = (
            TierLoad(tier, room.capacity_bytes, room.booked_bytes)
            for tier, room in book.faster.items()
        )
        disk = TierLoad(Tier.DISK, book.capacity_bytes, book.booked_bytes)
        return NodeLoad(name, (disk, *faster), book.caches)

    def list_quotas(self) -> Iterable[QuotaLoad]:
        """What each namespace would be charged, where it has a limit."""
        for namespace in sorted({cache.key.namespace for cache in self._world.caches}):
            limits = self._world.limits_of(namespace)
            charged = sum_charges(self._others(namespace))
            for item in Item:
                if item in limits.hard:
                    yield QuotaLoad(namespace, item, charged[item], limits.hard[item])

    def _put_present(self, cache: ModelCacheView) -> None:
        """What the cluster holds of it now."""
        here = self._world.assigned.get(cache.key, _NOWHERE) & self._nodes.keys()
        if (predecessor := self._world.predecessors.get(cache.key)) is not None:
            self._put(cache, predecessor, here, _NOWHERE, yields=True)
        elif (version := self._find(cache, cache.spec.stable.model_version)) is not None:
            self._put(cache, version, here, _NOWHERE)
        if cache.spec.canary is None:
            return
        if (canary := self._find(cache, cache.spec.canary.model_version)) is not None:
            present = self._world.canaries.get(cache.key, _NOWHERE) & self._nodes.keys()
            self._put(cache, canary, present, _NOWHERE)

    def _place_canary(
        self, cache: ModelCacheView, stable: SizedVersion, plan: PlacementPlan
    ) -> Beside | None:
        if cache.spec.canary is None:
            return None
        name = cache.spec.canary.model_version
        version = self._find(cache, name)
        if version is None:
            unknown = _refuse_unknown(cache, name)
            return Beside(unknown.version, 0, (), 0, unknown.refused)
        present = self._world.canaries.get(cache.key, _NOWHERE) & self._nodes.keys()
        traffic = cache.status.traffic
        wish = CanaryWish(
            cache=cache.uid,
            spec=cache.spec,
            version=version.uid,
            size_bytes=version.size_bytes,
            stable_version=stable.uid,
            stable=plan.nodes,
            slower=plan.slower,
            present=present,
            weight=traffic.canary if traffic is not None else 0,
        )
        found = place_canary(wish, self._books)
        found = limit_canary(
            self._account(cache, version), found, present, version.uid, self._books
        )
        self._put(cache, version, found.nodes, plan.slower)
        return Beside(
            version.key,
            version.size_bytes,
            tuple(sorted(found.nodes)),
            found.copies.wanted,
            _refused(found.copies.shortage),
        )

    def _tell_held(self, cache: ModelCacheView) -> Beside | None:
        predecessor = self._world.predecessors.get(cache.key)
        if predecessor is None:
            return None
        nodes = tuple(sorted(self._world.assigned.get(cache.key, _NOWHERE) & self._nodes.keys()))
        return Beside(predecessor.key, predecessor.size_bytes, nodes, len(nodes))

    def _account(self, cache: ModelCacheView, version: SizedVersion) -> Account:
        wish = self._hold(cache, version, _NOWHERE, _NOWHERE)
        others = self._others(cache.key.namespace, (cache.key, version.uid))
        limits = self._world.limits_of(cache.key.namespace)
        return make_account(limits, wish, others, cache.spec)

    def _others(
        self, namespace: str, but: tuple[ObjectKey, Uid] | None = None
    ) -> Iterable[Holding]:
        for own, holding in self._holdings.items():
            if own[0].namespace == namespace and own != but:
                yield holding

    def _hold(
        self,
        cache: ModelCacheView,
        version: SizedVersion,
        nodes: frozenset[NodeName],
        slower: frozenset[NodeName],
        *,
        yields: bool = False,
    ) -> Holding:
        live = frozenset(name for name in nodes if self._books[name].has_live_agent)
        is_pinned = cache.spec.retention is Retention.PINNED and not yields
        size, tier = version.size_bytes, cache.spec.tier
        return Holding(version.uid, size, live, tier, slower, is_pinned)

    def _put(
        self,
        cache: ModelCacheView,
        version: SizedVersion,
        nodes: frozenset[NodeName],
        slower: frozenset[NodeName],
        *,
        yields: bool = False,
    ) -> None:
        own = (cache.key, version.uid)
        priority, tier = self._priority(cache), cache.spec.tier
        self._holdings[own] = self._hold(cache, version, nodes, slower, yields=yields)
        for name, copies in self._copies.items():
            before = copies.pop(own, None)
            if name in nodes:
                here = Tier.DISK if name in slower else tier
                copies[own] = _Copy(version, here, priority, yields)
            if before != copies.get(own):
                self._books[name] = self._book(name)

    def _book(self, name: NodeName) -> NodeBook:
        planned, copies = self._nodes[name], self._copies[name]
        tiers: dict[Uid, Tier] = {}
        priorities: dict[Uid, Priority] = {}
        for copy in copies.values():
            uid = copy.version.uid
            before, was = tiers.get(uid, Tier.DISK), priorities.get(uid, Priority.LOW)
            tiers[uid] = max(before, copy.tier, key=lambda tier: tier.speed)
            priorities[uid] = max(was, copy.priority, key=lambda priority: priority.rank)
        return make_node_book(
            planned.node,
            planned.cache_node,
            planned.liveness,
            {copy.version.uid: copy.version.size_bytes for copy in copies.values()},
            tiers=tiers,
            priorities=priorities,
            caches=len({key for key, _ in copies}),
            yielding=frozenset(copy.version.uid for copy in copies.values() if copy.yields),
        )

    def _find(self, cache: ModelCacheView, name: str) -> SizedVersion | None:
        return self._world.versions.get(ObjectKey(cache.key.namespace, name))

    def _priority(self, cache: ModelCacheView) -> Priority:
        return effective_priority(self._world.limits_of(cache.key.namespace), cache.spec)


def _refused(shortage: Shortage | None) -> Refused | None:
    return None if shortage is None else Refused(shortage.reason, shortage.message)


def _refuse_unknown(cache: ModelCacheView, name: str) -> PlacedCache:
    wanted = ObjectKey(cache.key.namespace, name)
    message = f"there is no ModelVersion {wanted}: apply it, too"
    refused = Refused(Reason.MODEL_VERSION_NOT_FOUND, message)
    return PlacedCache(cache.key, wanted, 0, (), 0, cache.spec.tier, refused)
