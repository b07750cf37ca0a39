"""What the operator would place where, and what it would refuse. Pure: its own code decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelcache_api.names import Reason, Tier
from modelcache_operator.decide.eligibility import Demand
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.node_book import NodeBook, make_node_book
from modelcache_operator.decide.placement import place
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheView,
    NodeName,
    NodeView,
    ObjectKey,
    Uid,
)


@dataclass(frozen=True, slots=True)
class SizedVersion:
    """A ModelVersion of known size."""

    key: ObjectKey
    uid: Uid
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node with its agent, real or only thought of."""

    node: NodeView
    cache_node: CacheNodeView | None
    liveness: Liveness


@dataclass(frozen=True, slots=True)
class PlannedWorld:
    """What would be in the cluster. Caches come in the order in which they are placed.

    `assigned` are the nodes where a ModelCache is held now.
    """

    nodes: Sequence[PlannedNode]
    versions: Mapping[ObjectKey, SizedVersion]
    caches: Sequence[ModelCacheView]
    assigned: Mapping[ObjectKey, frozenset[NodeName]]


@dataclass(frozen=True, slots=True)
class PlacedCache:
    """One ModelCache: its nodes, and why they are fewer than it wants (or None)."""

    key: ObjectKey
    version: ObjectKey
    size_bytes: int
    nodes: tuple[NodeName, ...]
    wanted: int
    reason: Reason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node's disk once everything is placed. `capacity_bytes` is None without a report."""

    name: NodeName
    capacity_bytes: int | None
    booked_bytes: int
    caches: int

    @property
    def share(self) -> float:
        """Booked of capacity; 0 while the capacity is not known."""
        return self.booked_bytes / self.capacity_bytes if self.capacity_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome. `tier` is the one that is placed on: disks."""

    caches: tuple[PlacedCache, ...]
    nodes: tuple[NodeLoad, ...]
    tier: Tier = Tier.DISK

    @property
    def refused(self) -> tuple[PlacedCache, ...]:
        """ModelCaches with fewer nodes than they want."""
        return tuple(cache for cache in self.caches if cache.reason is not None)

    def crowded(self, headroom: float) -> tuple[NodeLoad, ...]:
        """Nodes without room for that share more than what is booked."""
        return tuple(load for load in self.nodes if load.share * (1 + headroom) > 1)


def make_fit(world: PlannedWorld) -> Fit:
    """Place one ModelCache after the other, as the operator does with what was applied."""
    sizes: dict[NodeName, dict[Uid, int]] = {planned.node.name: {} for planned in world.nodes}
    counts = dict.fromkeys(sizes, 0)
    for cache in world.caches:
        if version := _find_version(world, cache):
            for name in world.assigned.get(cache.key, frozenset()) & sizes.keys():
                sizes[name][version.uid] = version.size_bytes
                counts[name] += 1
    books = {planned.node.name: _make_book(planned, sizes, counts) for planned in world.nodes}
    by_name = {planned.node.name: planned for planned in world.nodes}
    placed = []
    for cache in world.caches:
        before = world.assigned.get(cache.key, frozenset()) & sizes.keys()
        found = _place(world, cache, before, books)
        placed.append(found)
        version = _find_version(world, cache)
        if version is None:
            continue
        for name in set(found.nodes) - before:
            sizes[name][version.uid] = version.size_bytes
            counts[name] += 1
            books[name] = _make_book(by_name[name], sizes, counts)
    loads = (
        NodeLoad(book.name, book.capacity_bytes, book.booked_bytes, counts[book.name])
        for book in books.values()
    )
    return Fit(tuple(placed), tuple(loads))


def _find_version(world: PlannedWorld, cache: ModelCacheView) -> SizedVersion | None:
    return world.versions.get(ObjectKey(cache.key.namespace, cache.spec.stable.model_version))


def _make_book(
    planned: PlannedNode,
    sizes: Mapping[NodeName, Mapping[Uid, int]],
    counts: Mapping[NodeName, int],
) -> NodeBook:
    name = planned.node.name
    return make_node_book(
        planned.node,
        planned.cache_node,
        planned.liveness,
        dict(sizes[name]),
        caches=counts[name],
    )


def _place(
    world: PlannedWorld,
    cache: ModelCacheView,
    before: frozenset[NodeName],
    books: Mapping[NodeName, NodeBook],
) -> PlacedCache:
    wanted_version = ObjectKey(cache.key.namespace, cache.spec.stable.model_version)
    version = _find_version(world, cache)
    if version is None:
        message = f"there is no ModelVersion {wanted_version}: apply it, too"
        return PlacedCache(
            cache.key, wanted_version, 0, (), 0, Reason.MODEL_VERSION_NOT_FOUND, message
        )
    demand = Demand(version.uid, version.size_bytes, cache.spec.placement)
    plan = place(cache.uid, demand, before, books)
    shortage = plan.shortage
    return PlacedCache(
        cache.key,
        wanted_version,
        version.size_bytes,
        tuple(sorted(plan.nodes)),
        plan.wanted,
        shortage.reason if shortage else None,
        shortage.message if shortage else "",
    )
