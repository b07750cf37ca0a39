"""Which ModelCache is placed on which nodes: the leader's memory, read back from CacheNodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from modelcache_api.names import EntryOrigin, Tier
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_operator.decide.stuck import StuckSince
from modelcache_operator.decide.world import CacheNodeView, NodeName, ObjectKey, Uid

_NOTHING: frozenset[ObjectKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where one ModelCache's version is held, in which tier, and which copies may be given up.

    `slower` are the nodes that cannot hold it in that tier, and keep it on their disks alone.
    Of this term alone: since when copies get no further, and which nodes they have left for it.
    """

    version: Uid
    nodes: frozenset[NodeName] = field(default=frozenset())
    evictable: frozenset[NodeName] = field(default=frozenset())
    tier: Tier = Tier.DISK
    slower: frozenset[NodeName] = field(default=frozenset())
    stuck_since: StuckSince = field(default_factory=dict)
    left: frozenset[NodeName] = field(default=frozenset())

    def tier_on(self, node: NodeName) -> Tier:
        """The fastest tier that the node is to hold it in."""
        return Tier.DISK if node in self.slower else self.tier


class Assignments:
    """All assignments, by ModelCache and by node. Pure memory; one event loop.

    It runs ahead of the CacheNodes that are written from it, so that two decisions in a row
    never promise the same room twice.
    """

    def __init__(self) -> None:
        self._by_cache: dict[ObjectKey, Assignment] = {}
        self._by_node: dict[NodeName, set[ObjectKey]] = defaultdict(set)
        self._by_version: dict[Uid, set[ObjectKey]] = defaultdict(set)

    def rebuild(self, cache_nodes: Iterable[CacheNodeView]) -> None:
        """Forget everything and read it back from what was written last, by whichever leader."""
        self._by_cache.clear()
        self._by_node.clear()
        self._by_version.clear()
        for cache_node in cache_nodes:
            self.read_back(cache_node)

    def read_back(self, cache_node: CacheNodeView) -> frozenset[ObjectKey]:
        """Add what was written for one node; returns the ModelCaches that have copies there."""
        entries = {entry.uid: entry for entry in cache_node.spec.entries}
        for ref in cache_node.spec.caches:
            if ref.origin is not EntryOrigin.PLACEMENT:
                continue
            key = ObjectKey(ref.namespace, ref.name)
            known = self._by_cache.get(key) or Assignment(Uid(ref.stable_uid))
            self.put(key, _with_node(known, cache_node.name, entries.get(ref.stable_uid)))
        return self.on(cache_node.name)

    def of(self, cache: ObjectKey) -> Assignment | None:
        """The assignment of one ModelCache."""
        return self._by_cache.get(cache)

    def caches(self) -> Iterable[ObjectKey]:
        """All ModelCaches that are placed somewhere."""
        return tuple(self._by_cache)

    def on(self, node: NodeName) -> frozenset[ObjectKey]:
        """The ModelCaches placed on one node."""
        return frozenset(self._by_node.get(node, _NOTHING))

    def tiers_on(self, node: NodeName) -> dict[Uid, Tier]:
        """The fastest tier that any ModelCache wants each version of the node in."""
        tiers: dict[Uid, Tier] = {}
        for cache in self._by_node.get(node, _NOTHING):
            placed = self._by_cache[cache]
            before = tiers.get(placed.version, Tier.DISK)
            tiers[placed.version] = max(before, placed.tier_on(node), key=lambda tier: tier.speed)
        return tiers

    def holders(self, version: Uid) -> frozenset[NodeName]:
        """The nodes on which the version is placed, by any ModelCache."""
        caches = self._by_version.get(version, ())
        return frozenset().union(*(self._by_cache[cache].nodes for cache in caches))

    def put(self, cache: ObjectKey, new: Assignment) -> frozenset[NodeName]:
        """Remember; returns the nodes whose CacheNode changes by it."""
        old = self._by_cache.get(cache)
        self._by_cache[cache] = new
        self._by_version[new.version].add(cache)
        if old is None:
            self._index(cache, new.nodes, frozenset())
            return new.nodes
        self._index(cache, new.nodes, old.nodes)
        if old.version != new.version:
            self._forget_version(cache, old.version)
            return old.nodes | new.nodes
        stayed = old.nodes & new.nodes
        moved = frozenset(node for node in stayed if old.tier_on(node) is not new.tier_on(node))
        return (old.nodes ^ new.nodes) | (old.evictable ^ new.evictable) | moved

    def drop(self, cache: ObjectKey) -> frozenset[NodeName]:
        """Forget a ModelCache; returns the nodes where it was."""
        old = self._by_cache.pop(cache, None)
        if old is None:
            return frozenset()
        self._index(cache, frozenset(), old.nodes)
        self._forget_version(cache, old.version)
        return old.nodes

    def drop_node(self, node: NodeName) -> frozenset[ObjectKey]:
        """Forget a node that is gone for good; returns the ModelCaches that were there."""
        caches = self.on(node)
        for cache in caches:
            old = self._by_cache[cache]
            kept, slower = old.nodes - {node}, old.slower - {node}
            evictable = old.evictable - {node}
            self.put(cache, replace(old, nodes=kept, slower=slower, evictable=evictable))
        return caches

    def _index(
        self, cache: ObjectKey, nodes: frozenset[NodeName], before: frozenset[NodeName]
    ) -> None:
        for node in nodes - before:
            self._by_node[node].add(cache)
        for node in before - nodes:
            self._by_node[node].discard(cache)
            if not self._by_node[node]:
                del self._by_node[node]

    def _forget_version(self, cache: ObjectKey, version: Uid) -> None:
        self._by_version[version].discard(cache)
        if not self._by_version[version]:
            del self._by_version[version]


def _with_node(known: Assignment, node: NodeName, entry: EntrySpec | None) -> Assignment:
    """The assignment with one more node, as that node's entry says it."""
    added = frozenset({node})
    told = entry.tier if entry else Tier.DISK
    tier = max(known.tier, told, key=lambda one: one.speed)
    on_disk = known.nodes if known.tier is Tier.DISK else known.slower
    if told is Tier.DISK:
        on_disk |= added
    return replace(
        known,
        nodes=known.nodes | added,
        evictable=known.evictable | (added if entry and entry.evictable else frozenset()),
        tier=tier,
        slower=frozenset() if tier is Tier.DISK else on_disk,
    )
