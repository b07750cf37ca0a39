"""Pods by the node that they are bound to, and by the ModelCache that they name."""

from __future__ import annotations

from collections import defaultdict

from modelcache_operator.changes import Changed
from modelcache_operator.decide.world import NodeName, ObjectKey, PodView


class PodIndex:
    """Follows the changes that the watch cache tells."""

    def __init__(self) -> None:
        self._by_node: dict[NodeName, set[ObjectKey]] = defaultdict(set)
        self._by_cache: dict[ObjectKey, set[ObjectKey]] = defaultdict(set)

    def note(self, change: Changed) -> None:
        """Take in a change of any object."""
        if isinstance(change.old, PodView):
            self._remove(change.old)
        if isinstance(change.new, PodView):
            self._add(change.new)

    def on(self, node: NodeName) -> tuple[ObjectKey, ...]:
        """The pods on a node."""
        return tuple(self._by_node.get(node, ()))

    def of(self, cache: ObjectKey) -> tuple[ObjectKey, ...]:
        """The pods of a ModelCache."""
        return tuple(self._by_cache.get(cache, ()))

    def _add(self, pod: PodView) -> None:
        self._by_cache[pod.cache].add(pod.key)
        if pod.node is not None:
            self._by_node[pod.node].add(pod.key)

    def _remove(self, pod: PodView) -> None:
        self._by_cache[pod.cache].discard(pod.key)
        if not self._by_cache[pod.cache]:
            del self._by_cache[pod.cache]
        if pod.node is not None:
            self._by_node[pod.node].discard(pod.key)
            if not self._by_node[pod.node]:
                del self._by_node[pod.node]
