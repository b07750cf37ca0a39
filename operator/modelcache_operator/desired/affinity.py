"""The node affinity that brings a pod to the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from modelcache_api.names import Tier

# Weights per value of a node label, as they count against each other (1 to 100). The scheduler
# sets the best node's sum to 100 before it adds other scores.
TIER_WEIGHTS: Final = {
    Tier.GPU.label_value: 100,
    Tier.HOST.label_value: 60,
    Tier.DISK.label_value: 20,
}


def build_preferred_terms(node_label_key: str) -> list[dict[str, Any]]:
    """A preferred scheduling term for each tier, the fastest first."""
    return [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [{"key": node_label_key, "operator": "In", "values": [tier]}]
            },
        }
        for tier, weight in TIER_WEIGHTS.items()
    ]


def build_holder_requirement(node_label_key: str) -> dict[str, Any]:
    """The expression of a node that holds the model in any tier."""
    return {"key": node_label_key, "operator": "Exists"}


def build_node_affinity(
    node_label_keys: Sequence[str], *, required: bool = False
) -> dict[str, Any]:
    """The `nodeAffinity` for the versions behind the given label keys.

    Preferred by default: a pod is never kept waiting for a cache. `required` keeps it off nodes
    without a verified copy, and pending if there is none.
    """
    keys = sorted(set(node_label_keys))
    if required:
        terms = [{"matchExpressions": [build_holder_requirement(key)]} for key in keys]
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    preferred = [term for key in keys for term in build_preferred_terms(key)]
    return {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
