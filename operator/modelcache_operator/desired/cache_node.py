"""CacheNode objects, whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec
from modelcache_operator.decide.world import CacheNodeView, NodeView


def build_cache_node(node: NodeView, spec: CacheNodeSpec) -> dict[str, Any]:
    """The node's CacheNode. Its owner is the Node, so that it goes when the Node goes."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return {
        "metadata": {"name": node.name, "ownerReferences": [owner]},
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def build_node_conditions(
    cache_node: CacheNodeView, conditions: Sequence[ConditionStatus]
) -> dict[str, Any]:
    """The operator's share of a CacheNode's status. The UID guards against a successor."""
    dumped = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in conditions]
    return {
        "metadata": {"name": cache_node.name, "uid": cache_node.uid},
        "status": {"conditions": dumped},
    }
