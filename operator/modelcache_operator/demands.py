"""Which ModelCaches are held on which nodes for the sake of pods there: the leader's memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from modelcache_api.names import EntryOrigin, Track
from modelcache_operator.decide.demand import Want
from modelcache_operator.decide.world import CacheNodeView, NodeName, ObjectKey, Uid

_NOTHING: Final[Mapping[Want, Uid]] = {}


class Demands:
    """By node, ModelCache and version. Pure memory; one event loop."""

    def __init__(self) -> None:
        self._by_node: dict[NodeName, dict[Want, Uid]] = {}
        self._by_cache: dict[ObjectKey, set[NodeName]] = defaultdict(set)
        self._refused: dict[NodeName, frozenset[Want]] = {}

    def rebuild(self, cache_nodes: Iterable[CacheNodeView]) -> None:
        """Forget everything and read it back from what was written last."""
        self._by_node.clear()
        self._by_cache.clear()
        self._refused.clear()
        for cache_node in cache_nodes:
            self.read_back(cache_node)

    def read_back(self, cache_node: CacheNodeView) -> frozenset[ObjectKey]:
        """Take what was written for one node; returns the ModelCaches that have come or gone."""
        demanded: dict[Want, Uid] = {}
        entries = {entry.uid: entry for entry in cache_node.spec.entries}
        for ref in cache_node.spec.caches:
            key = ObjectKey(ref.namespace, ref.name)
            if ref.origin is EntryOrigin.DEMAND:
                demanded[key, Track.STABLE] = Uid(ref.stable_uid)
            canary = entries.get(ref.canary_uid) if ref.canary_uid else None
            if canary is not None and canary.origin is EntryOrigin.DEMAND:
                demanded[key, Track.CANARY] = Uid(canary.uid)
        over = {Uid(entry.uid) for entry in cache_node.spec.entries if entry.over_quota}
        refused = frozenset(want for want, uid in demanded.items() if uid in over)
        return self.put(cache_node.name, demanded, refused)

    def put(
        self,
        node: NodeName,
        demanded: Mapping[Want, Uid],
        refused: frozenset[Want] = frozenset(),
    ) -> frozenset[ObjectKey]:
        """Remember; returns the ModelCaches that have come or gone.

        `refused` are told to the node, and not fetched: their namespaces' quotas do not allow it.
        """
        if refused:
            self._refused[node] = refused
        else:
            self._refused.pop(node, None)
        before = self._by_node.get(node, _NOTHING)
        old, new = {key for key, _ in before}, {key for key, _ in demanded}
        for cache in new - old:
            self._by_cache[cache].add(node)
        for cache in old - new:
            self._by_cache[cache].discard(node)
            if not self._by_cache[cache]:
                del self._by_cache[cache]
        if demanded:
            self._by_node[node] = dict(demanded)
        else:
            self._by_node.pop(node, None)
        return frozenset(key for key, _ in before.keys() ^ demanded.keys())

    def nodes_of(self, cache: ObjectKey) -> frozenset[NodeName]:
        """The nodes where pods read the ModelCache though it is not placed there."""
        return frozenset(self._by_cache.get(cache, ()))

    def in_namespace(self, namespace: str) -> Iterator[tuple[ObjectKey, NodeName, Uid]]:
        """What pods of one namespace read, with the nodes and the versions."""
        for cache in sorted(key for key in self._by_cache if key.namespace == namespace):
            for node in sorted(self._by_cache[cache]):
                refused = self._refused.get(node, frozenset())
                for want, version in self._by_node[node].items():
                    if want[0] == cache and want not in refused:
                        yield cache, node, version

    def refused_nodes(self, namespace: str) -> frozenset[NodeName]:
        """The nodes where a quota refuses what pods of the namespace read."""
        return frozenset(
            node
            for node, refused in self._refused.items()
            if any(key.namespace == namespace for key, _ in refused)
        )

    def on(self, node: NodeName) -> Mapping[Want, Uid]:
        """What pods of one node ask for, with the versions."""
        return self._by_node.get(node, _NOTHING)

    def holders(self, version: Uid) -> frozenset[NodeName]:
        """The nodes that hold the version for a pod."""
        return frozenset(
            node for node, demanded in self._by_node.items() if version in demanded.values()
        )
