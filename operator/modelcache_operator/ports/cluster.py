"""What the leader writes to the API server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_api.v1alpha1.model_cache_quota import ModelCacheQuotaStatus
from modelcache_api.v1alpha1.model_version import ModelVersionStatus
from modelcache_operator.decide.world import (
    AgentLeaseView,
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    PodView,
)


class ClusterWriter(Protocol):
    """Writes whole desired values, only where they differ from what was last seen.

    What the API server answers enters the watch cache at once, so that the next look sees it. An
    object that is gone is no error. Errors of the API server (`modelcache_kube.KubeError`) pass
    through: the caller tries the whole step again later.
    """

    async def put_version_status(
        self, version: ModelVersionView, status: ModelVersionStatus
    ) -> bool:
        """True if it differed and was written."""

    async def put_cache_status(self, cache: ModelCacheView, status: ModelCacheStatus) -> bool:
        """True if it differed and was written."""

    async def put_quota_status(
        self, quota: ModelCacheQuotaView, status: ModelCacheQuotaStatus
    ) -> bool:
        """True if it differed and was written."""

    async def put_cache_node(
        self, node: NodeView, seen: CacheNodeView | None, spec: CacheNodeSpec
    ) -> bool:
        """Create the node's CacheNode, or bring its spec up to date. True if written."""

    async def put_node_conditions(
        self, cache_node: CacheNodeView, conditions: Sequence[ConditionStatus]
    ) -> bool:
        """The operator's conditions of a CacheNode. True if they differed and were written."""

    async def read_agent_lease(self, node: NodeName) -> AgentLeaseView | None:
        """The Lease of a node's agent as it is now: lists of them are some seconds old."""

    async def remove_node_labels(self, node: NodeView, keys: Sequence[str]) -> None:
        """Take labels off a node. Never adds one."""

    async def lift_gate(self, pod: PodView, require: str | None) -> bool:
        """Let a gated pod through, to nodes with that label if one is named. True if written."""

    async def lift_taint(self, node: NodeView) -> bool:
        """Take our taint off a node that is ready. True if written."""

    async def delete_cache_node(self, cache_node: CacheNodeView) -> None:
        """Delete exactly this CacheNode; a newer one of the same name stays."""

    async def delete_agent_lease(self, node: NodeName) -> None:
        """Delete the Lease that the agent of a node that is gone has left."""
