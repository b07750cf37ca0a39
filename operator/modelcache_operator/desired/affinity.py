"""The node affinity that brings a pod to the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from modelcache_api.names import Tier

# Weights per tier, as they count against the scheduler's other scores (1 to 100).
TIER_WEIGHTS: Final = {Tier.DISK: 20}


def build_node_affinity(
    node_label_keys: Sequence[str], *, required: bool = False
) -> dict[str, Any]:
    """The `nodeAffinity` for the versions behind the given label keys.

    Preferred by default: a pod is never kept waiting for a cache. `required` keeps it off nodes
    without a verified copy, and pending if there is none.
    """
    keys = sorted(set(node_label_keys))
    if required:
        terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in keys]
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    preferred = [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [{"key": key, "operator": "In", "values": [tier.lower()]}]
            },
        }
        for key in keys
        for tier, weight in TIER_WEIGHTS.items()
    ]
    return {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
