"""Brings one node's CacheNode, its Ready condition and its labels up to date."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from modelcache_api.limits import MAX_ENTRIES_PER_NODE
from modelcache_api.names import Tier, Track
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_operator.decide.cache_node_spec import (
    CacheTracks,
    PlacedCopy,
    make_cache_node_spec,
)
from modelcache_operator.decide.demand import DemandedCopy, Want, choose_demands
from modelcache_operator.decide.events import node_events
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.node_status import labels_to_remove, make_node_conditions
from modelcache_operator.decide.quota import effective_priority
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    Uid,
)
from modelcache_operator.held_version import (
    find_canary_weight,
    find_wanted_version,
    is_unreadable,
)
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.cluster import ClusterWriter
from modelcache_operator.ports.telling import EventSink
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.quotas import Quotas
from modelcache_operator.reconcilers.taints import TaintWarden
from modelcache_operator.routing import Router
from modelcache_operator.workqueue import Requeue

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeReconciler:
    """Writes what has been decided elsewhere; the agents do the rest."""

    world: ObservedWorld
    memory: Memory
    router: Router
    writer: ClusterWriter
    events: EventSink
    clock: Clock
    taints: TaintWarden
    quotas: Quotas

    async def reconcile(self, name: NodeName) -> Requeue:
        """Safe to call at any time, any number of times."""
        node, cache_node = self.world.node(name), self.world.cache_node(name)
        if node is None:
            if name not in self.world.unreadable.nodes:
                await self._clean_up(name, cache_node)
            return Requeue()
        liveness = await self._take_labels_off(node)
        if name in self.world.unreadable.cache_nodes:
            # What it wants is not known, and an empty list would cost the node its bytes.
            return Requeue()
        if cache_node is not None and cache_node.spec.node_uid != node.uid:
            # A rebuilt node starts clean: its agent must not act on the old one's list.
            await self.writer.delete_cache_node(cache_node)
            cache_node = None
        if node.is_deleted or (cache_node is None and liveness is Liveness.ABSENT):
            return Requeue()
        if cache_node is not None and (held := self.memory.read_back(cache_node)):
            self.router.on_read_back(name, held)
        copies, demands = self._copies_on(name, cache_node), self._demands_on(name, cache_node)
        spec = make_cache_node_spec(node.uid, copies, demands, self._tracks_on(name))
        if (placed := len(self.memory.assignments.on(name))) > MAX_ENTRIES_PER_NODE:
            _log.error("%d ModelCaches are placed on node %s: not all are written", placed, name)
        await self.writer.put_cache_node(node, cache_node, spec)
        await self._report(name, liveness)
        return await self.taints.look(name)

    async def _take_labels_off(self, node: NodeView) -> Liveness:
        """The labels of an agent that is gone; returns what is believed of it.

        An agent that came back after the last list of the Leases has labelled its node again.
        """
        agents = self.memory.agents
        if not labels_to_remove(node, agents.liveness(node.name)):
            return agents.liveness(node.name)
        lease = await self.writer.read_agent_lease(node.name)
        if lease is not None and agents.note_one(lease):
            self.router.on_liveness((node.name,))
        liveness = agents.liveness(node.name)
        if keys := labels_to_remove(node, liveness):
            await self.writer.remove_node_labels(node, keys)
        return liveness

    def _demands_on(
        self, name: NodeName, present: CacheNodeView | None
    ) -> tuple[DemandedCopy, ...]:
        """What the node's pods read beyond what is placed there; remembered for others to see."""
        book = self.memory.books.all().get(name)
        pods = tuple(self.world.pods_on(name)) if book is not None else ()
        demands: tuple[DemandedCopy, ...] = ()
        if book is not None and pods:
            demands = choose_demands(
                pods,
                self._placed_on(name),
                lambda want: self._demanded_version(name, want, present),
                self._tier_of,
                book,
            )
        demands = self._judge(name, demands)
        refused = frozenset(one.want for one in demands if one.is_over_quota)
        wanted = {one.want: one.uid for one in demands}
        changed = self.memory.demands.put(name, wanted, refused)
        self.router.on_demand(changed)
        return demands

    def _judge(self, name: NodeName, demands: Iterable[DemandedCopy]) -> tuple[DemandedCopy, ...]:
        """The same with their priorities, and which of them a quota refuses."""
        judged: list[DemandedCopy] = []
        for one in demands:
            cache = self.world.model_cache(one.cache)
            if cache is None:
                judged.append(one)
                continue
            limits = self.quotas.limits_of(one.cache.namespace)
            also = tuple(
                self.quotas.demanded(name, other, before.uid)
                for before in judged
                if before.cache.namespace == one.cache.namespace and not before.is_over_quota
                if (other := self.world.model_cache(before.cache)) is not None
            )
            is_allowed = self.quotas.allows_demand(name, cache, one.uid, also)
            priority = effective_priority(limits, cache.spec)
            judged.append(replace(one, priority=priority, is_over_quota=not is_allowed))
        return tuple(judged)

    def _placed_on(self, name: NodeName) -> frozenset[Want]:
        """What pods find here without asking."""
        assignments = self.memory.assignments
        placed = {(key, Track.STABLE) for key in assignments.placed_on(name)}
        for key in assignments.on(name):
            assignment = assignments.of(key)
            if assignment is not None and assignment.canary and name in assignment.canary.nodes:
                placed.add((key, Track.CANARY))
        return frozenset(placed)

    def _demanded_version(
        self, name: NodeName, want: Want, present: CacheNodeView | None
    ) -> ModelVersionView | EntrySpec | None:
        """What pods read; while that cannot be known, what is held for them already."""
        if held := find_wanted_version(want, self.world, self.memory.assignments):
            return held
        uid = self.memory.demands.on(name).get(want)
        if uid is None or not is_unreadable(want[0], uid, self.world):
            return None
        return self._version_on(uid, present)

    def _tier_of(self, key: ObjectKey) -> Tier:
        cache = self.world.model_cache(key)
        return cache.spec.tier if cache is not None else Tier.DISK

    async def _report(self, name: NodeName, liveness: Liveness) -> None:
        cache_node = self.world.cache_node(name)
        if cache_node is None:
            return
        accusers = (node.name for node in self.world.accusers_of(Uid(cache_node.spec.node_uid)))
        node = self.world.node(name)
        conditions = make_node_conditions(
            cache_node,
            liveness,
            self.clock.now(),
            accusers,
            kubelet_pressed=node is not None and node.has_disk_pressure,
        )
        if await self.writer.put_node_conditions(cache_node, conditions):
            self.events.publish(node_events(cache_node, conditions))

    async def _clean_up(self, name: NodeName, cache_node: CacheNodeView | None) -> None:
        """The Node is gone for good. Owners do the same, but later and not on every cluster."""
        caches = self.memory.assignments.drop_node(name) | self.memory.demands.put(name, {})
        self.taints.forget(name)
        self.router.on_node_gone(name, caches)
        if cache_node is not None:
            await self.writer.delete_cache_node(cache_node)
        if name in self.memory.agents.without_node():
            await self.writer.delete_agent_lease(name)
            self.memory.agents.forget(name)

    def _copies_on(self, name: NodeName, present: CacheNodeView | None) -> Iterator[PlacedCopy]:
        assignments = self.memory.assignments
        for key in assignments.on(name):
            assignment = assignments.of(key)
            if assignment is None:
                continue
            tier, is_over = assignment.tier_on(name), key.namespace in self.memory.over_quota
            for role, uid, may_be_evicted in assignment.copies_on(name):
                version = self._version_on(uid, present)
                if version is not None:
                    yield PlacedCopy(
                        key,
                        version,
                        may_be_evicted,
                        role,
                        tier,
                        assignment.priority,
                        assignment.is_pinned,
                        is_over,
                    )

    def _tracks_on(self, name: NodeName) -> dict[ObjectKey, CacheTracks]:
        """Which version is stable, and the weight in force, as the status that was written says."""
        assignments = self.memory.assignments
        tracks: dict[ObjectKey, CacheTracks] = {}
        for key in assignments.on(name) | {key for key, _ in self.memory.demands.on(name)}:
            assignment, cache = assignments.of(key), self.world.model_cache(key)
            if assignment is not None:
                tracks[key] = CacheTracks(
                    assignment.version, find_canary_weight(cache, assignment.canary_version)
                )
        return tracks

    def _version_on(
        self, uid: Uid, present: CacheNodeView | None
    ) -> ModelVersionView | EntrySpec | None:
        """The version; the node's entry of it if it is gone, or cannot be read."""
        version = self.world.model_version(uid)
        if version is None and present is not None:
            return present.spec.find_entry(uid)
        return version
