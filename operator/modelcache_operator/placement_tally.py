"""Counts how many pods were bound to nodes that hold their model."""

from __future__ import annotations

from collections.abc import Callable

from modelcache_operator.changes import Changed
from modelcache_operator.decide.warmth import Warmth, find_version, judge_warmth
from modelcache_operator.decide.world import PodView
from modelcache_operator.ports.world import ObservedWorld


class PlacementTally:
    """Listens to the watch cache. Pods that were bound before they were seen are not counted."""

    def __init__(self, world: ObservedWorld, count: Callable[[Warmth], None]) -> None:
        self._world = world
        self._count = count

    def note(self, change: Changed) -> None:
        """A pod may just have been bound."""
        old, pod = change.old, change.new
        if not isinstance(old, PodView) or not isinstance(pod, PodView):
            return
        if old.node is not None or pod.node is None:
            return
        cache = self._world.model_cache(pod.cache)
        if cache is None:
            return
        wanted = find_version(pod, cache)
        version = None if wanted is None else self._world.model_version_named(wanted)
        self._count(judge_warmth(version, self._world.cache_node(pod.node)))
