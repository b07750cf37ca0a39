"""Which ModelCaches are held on which nodes for the sake of pods there: the leader's memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from modelcache_api.names import EntryOrigin
from modelcache_operator.decide.world import CacheNodeView, NodeName, ObjectKey, Uid

_NOTHING: Final[Mapping[ObjectKey, Uid]] = {}


class Demands:
    """By node, ModelCache and version. Pure memory; one event loop."""

    def __init__(self) -> None:
        self._by_node: dict[NodeName, dict[ObjectKey, Uid]] = {}
        self._by_cache: dict[ObjectKey, set[NodeName]] = defaultdict(set)

    def rebuild(self, cache_nodes: Iterable[CacheNodeView]) -> None:
        """Forget everything and read it back from what was written last."""
        self._by_node.clear()
        self._by_cache.clear()
        for cache_node in cache_nodes:
            self.read_back(cache_node)

    def read_back(self, cache_node: CacheNodeView) -> frozenset[ObjectKey]:
        """Take what was written for one node; returns the ModelCaches that have come or gone."""
        demanded = {
            ObjectKey(ref.namespace, ref.name): Uid(ref.stable_uid)
            for ref in cache_node.spec.caches
            if ref.origin is EntryOrigin.DEMAND
        }
        return self.put(cache_node.name, demanded)

    def put(self, node: NodeName, demanded: Mapping[ObjectKey, Uid]) -> frozenset[ObjectKey]:
        """Remember; returns the ModelCaches that have come or gone."""
        before = self._by_node.get(node, _NOTHING)
        changed = before.keys() ^ demanded.keys()
        for cache in demanded.keys() - before.keys():
            self._by_cache[cache].add(node)
        for cache in before.keys() - demanded.keys():
            self._by_cache[cache].discard(node)
            if not self._by_cache[cache]:
                del self._by_cache[cache]
        if demanded:
            self._by_node[node] = dict(demanded)
        else:
            self._by_node.pop(node, None)
        return frozenset(changed)

    def nodes_of(self, cache: ObjectKey) -> frozenset[NodeName]:
        """The nodes where pods read the ModelCache though it is not placed there."""
        return frozenset(self._by_cache.get(cache, ()))

    def on(self, node: NodeName) -> Mapping[ObjectKey, Uid]:
        """The ModelCaches of one node, with their versions."""
        return self._by_node.get(node, _NOTHING)

    def holders(self, version: Uid) -> frozenset[NodeName]:
        """The nodes that hold the version for a pod."""
        return frozenset(
            node for node, demanded in self._by_node.items() if version in demanded.values()
        )
