"""The leader's writes: whole values by server-side apply, only where they differ."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from modelcache_api import names
from modelcache_api.names import AGENT_LEASE_PREFIX
from modelcache_api.v1alpha1.base import ApiModel, ConditionStatus
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_api.v1alpha1.model_cache_quota import ModelCacheQuotaStatus
from modelcache_api.v1alpha1.model_version import ModelVersionStatus
from modelcache_kube import (
    CACHE_NODES,
    LEASES,
    MODEL_CACHE_QUOTAS,
    MODEL_CACHES,
    MODEL_VERSIONS,
    NODES,
    PODS,
    ApiUnavailable,
    Conflict,
    KubeClient,
    NotFound,
    Resource,
)
from modelcache_operator.adapters.parsing import ObservedKind, parse_agent_lease, parse_object
from modelcache_operator.adapters.token_bucket import TokenBucket
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.decide.node_status import OWNED
from modelcache_operator.decide.world import (
    AgentLeaseView,
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    PodView,
)
from modelcache_operator.desired.cache_node import build_cache_node, build_node_conditions
from modelcache_operator.desired.gate_lift import build_gate_lift, build_taint_lift
from modelcache_operator.desired.label_removal import build_label_removal
from modelcache_operator.desired.status import build_removals, build_status

_log = logging.getLogger(__name__)
_STATUS: Final = "status"
_RESOURCES: Final[Mapping[ObservedKind, Resource]] = {
    ObservedKind.MODEL_VERSIONS: MODEL_VERSIONS,
    ObservedKind.MODEL_CACHES: MODEL_CACHES,
    ObservedKind.QUOTAS: MODEL_CACHE_QUOTAS,
    ObservedKind.CACHE_NODES: CACHE_NODES,
    ObservedKind.NODES: NODES,
}


class KubeWriter:
    """Implements `ports.cluster.ClusterWriter`.

    `may_write` is asked before each request: a replica that has lost its term writes nothing.
    """

    def __init__(
        self,
        kube: KubeClient,
        cache: WatchCache,
        bucket: TokenBucket,
        *,
        namespace: str,
        may_write: Callable[[], bool],
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._bucket = bucket
        self._namespace = namespace
        self._may_write = may_write

    async def put_version_status(
        self, version: ModelVersionView, status: ModelVersionStatus
    ) -> bool:
        """True if it differed and was written."""
        return await self._put_status(ObservedKind.MODEL_VERSIONS, version, status)

    async def put_cache_status(self, cache: ModelCacheView, status: ModelCacheStatus) -> bool:
        """True if it differed and was written."""
        return await self._put_status(ObservedKind.MODEL_CACHES, cache, status)

    async def put_quota_status(
        self, quota: ModelCacheQuotaView, status: ModelCacheQuotaStatus
    ) -> bool:
        """True if it differed and was written."""
        return await self._put_status(ObservedKind.QUOTAS, quota, status)

    async def put_cache_node(
        self, node: NodeView, seen: CacheNodeView | None, spec: CacheNodeSpec
    ) -> bool:
        """Create the node's CacheNode, or bring its spec up to date. True if written."""
        if seen is not None and seen.spec == spec:
            return False
        await self._apply(
            ObservedKind.CACHE_NODES, build_cache_node(node, spec), names.MANAGER_OPERATOR
        )
        return True

    async def put_node_conditions(
        self, cache_node: CacheNodeView, conditions: Sequence[ConditionStatus]
    ) -> bool:
        """The operator's conditions of a CacheNode. True if they differed and were written."""
        seen = tuple(c for c in cache_node.status.conditions if c.type in OWNED)
        if seen == tuple(conditions):
            return False
        body = build_node_conditions(cache_node, conditions)
        return await self._apply_status(ObservedKind.CACHE_NODES, body)

    async def remove_node_labels(self, node: NodeView, keys: Sequence[str]) -> None:
        """Take labels off a node. Never adds one."""
        await self.begin_write()
        try:
            raw = await self._kube.merge_patch(NODES, node.name, build_label_removal(node, keys))
        except NotFound:
            return
        self._cache.observe(parse_object(ObservedKind.NODES, raw))
        _log.info("took %d labels off node %s: its agent is gone", len(keys), node.name)

    async def lift_gate(self, pod: PodView, require: str | None) -> bool:
        """Let a gated pod through. True if written."""
        raw = await self._kube.get(PODS, pod.key.name, pod.key.namespace)
        if raw is None or raw["metadata"]["uid"] != pod.uid:
            return False
        patch = build_gate_lift(raw, require)
        if patch is None:
            return False
        await self.begin_write()
        namespace = pod.key.namespace
        lifted = await self._kube.merge_patch(PODS, pod.key.name, patch, namespace=namespace)
        self._cache.observe(parse_object(ObservedKind.PODS, lifted))
        return True

    async def lift_taint(self, node: NodeView) -> bool:
        """Take our taint off a node that is ready. True if written."""
        raw = await self._kube.get(NODES, node.name)
        if raw is None or raw["metadata"]["uid"] != node.uid:
            return False
        patch = build_taint_lift(raw)
        if patch is None:
            return False
        await self.begin_write()
        lifted = await self._kube.merge_patch(NODES, node.name, patch)
        self._cache.observe(parse_object(ObservedKind.NODES, lifted))
        _log.info("lifted the taint of node %s: its agent is ready", node.name)
        return True

    async def read_agent_lease(self, node: NodeName) -> AgentLeaseView | None:
        """The Lease of a node's agent as it is now."""
        raw = await self._kube.get(LEASES, f"{AGENT_LEASE_PREFIX}{node}", self._namespace)
        return parse_agent_lease(raw) if raw is not None else None

    async def delete_cache_node(self, cache_node: CacheNodeView) -> None:
        """Delete exactly this CacheNode; a newer one of the same name stays."""
        await self.begin_write()
        try:
            await self._kube.delete(CACHE_NODES, cache_node.name, uid=cache_node.uid)
        except Conflict:
            return
        key = ObjectKey("", cache_node.name)
        self._cache.forget(ObservedKind.CACHE_NODES, key, cache_node.uid)

    async def delete_agent_lease(self, node: NodeName) -> None:
        """Delete the Lease that the agent of a node that is gone has left."""
        await self.begin_write()
        await self._kube.delete(LEASES, f"{AGENT_LEASE_PREFIX}{node}", self._namespace)

    async def _put_status(
        self,
        kind: ObservedKind,
        view: ModelVersionView | ModelCacheView | ModelCacheQuotaView,
        status: ApiModel,
    ) -> bool:
        if view.status == status:
            return False
        return await self._apply_status(kind, build_status(view, status), is_whole=True)

    async def _apply_status(
        self, kind: ObservedKind, body: Mapping[str, Any], *, is_whole: bool = False
    ) -> bool:
        """False if the object is gone, or another one bears its name.

        A whole status is ours alone: what others put into it is removed.
        """
        try:
            raw = await self._apply(kind, body, names.MANAGER_OPERATOR_STATUS, _STATUS)
            if is_whole:
                await self._remove_foreign(kind, raw, body[_STATUS])
        except NotFound as error:
            if not error.names_an_object:
                raise
            return False
        except Conflict:
            return False
        return True

    async def _remove_foreign(
        self, kind: ObservedKind, raw: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> None:
        removals = build_removals(raw.get(_STATUS) or {}, wanted)
        if not removals:
            return
        metadata = raw["metadata"]
        guard = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        await self.begin_write()
        cleaned = await self._kube.merge_patch(
            _RESOURCES[kind],
            metadata["name"],
            {"metadata": guard, _STATUS: removals},
            namespace=metadata.get("namespace"),
            subresource=_STATUS,
            field_manager=names.MANAGER_OPERATOR_STATUS,
        )
        self._cache.observe(parse_object(kind, cleaned))

    async def _apply(
        self,
        kind: ObservedKind,
        body: Mapping[str, Any],
        manager: str,
        subresource: str | None = None,
    ) -> Mapping[str, Any]:
        await self.begin_write()
        raw = await self._kube.apply(
            _RESOURCES[kind], body, field_manager=manager, subresource=subresource
        )
        self._cache.observe(parse_object(kind, raw))
        return raw

    async def begin_write(self) -> None:
        """Wait for the turn of one write.

        Raises:
            ApiUnavailable: another replica leads by now.
        """
        await self._bucket.take()
        if not self._may_write():
            raise ApiUnavailable("not the leader any more: nothing was written")
