"""Whether a pod was bound to a node that holds its model. Pure."""

from __future__ import annotations

from enum import StrEnum

from modelcache_api.names import EntryState, Track
from modelcache_operator.decide.demand import want_of
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheView,
    ModelVersionView,
    ObjectKey,
    PodView,
)


class Warmth(StrEnum):
    """What a pod finds on its node."""

    WARM = "warm"
    COLD = "cold"


def find_version(pod: PodView, cache: ModelCacheView) -> ObjectKey | None:
    """The ModelVersion that the pod wants of the ModelCache; None: it has no canary."""
    _, track = want_of(pod)
    chosen = cache.spec.canary if track is Track.CANARY else cache.spec.stable
    return None if chosen is None else ObjectKey(cache.key.namespace, chosen.model_version)


def judge_warmth(version: ModelVersionView | None, node: CacheNodeView | None) -> Warmth:
    """Warm if the node's agent reports a verified copy."""
    if version is None or node is None:
        return Warmth.COLD
    holds = any(
        entry.uid == version.uid and entry.state is EntryState.CACHED
        for entry in node.status.entries
    )
    return Warmth.WARM if holds else Warmth.COLD
