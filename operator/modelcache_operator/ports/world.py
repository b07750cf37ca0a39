"""The observed world, read from memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    PodView,
    Uid,
    Unreadable,
)


class WorldReader(Protocol):
    """Single objects of the watch cache. No method does I/O; absent objects are None.

    So are those that cannot be read: ask `unreadable` before an absence is acted upon.
    """

    @property
    def is_synced(self) -> bool:
        """True once the first lists are complete: from then on, absence means something."""

    @property
    def unreadable(self) -> Unreadable:
        """What is there and not understood."""

    def cache_node(self, name: NodeName) -> CacheNodeView | None:
        """The CacheNode of that node, as last seen."""

    def nodes_of_entry(self, uid: Uid) -> Iterable[CacheNodeView]:
        """The CacheNodes whose spec names that ModelVersion."""

    def node(self, name: NodeName) -> NodeView | None:
        """The Node, as last seen; None if it is gone."""

    def model_version(self, uid: Uid) -> ModelVersionView | None:
        """The ModelVersion with that UID, as last seen; None if it is gone."""


class ObservedWorld(WorldReader, Protocol):
    """The whole watch cache, as the leader reads it. No method does I/O."""

    def model_version_named(self, key: ObjectKey) -> ModelVersionView | None:
        """The ModelVersion of that name, as last seen."""

    def model_cache(self, key: ObjectKey) -> ModelCacheView | None:
        """The ModelCache of that name, as last seen."""

    def model_versions(self) -> Iterable[ModelVersionView]:
        """All ModelVersions."""

    def model_caches(self) -> Iterable[ModelCacheView]:
        """All ModelCaches."""

    def quotas(self) -> Iterable[ModelCacheQuotaView]:
        """All ModelCacheQuotas."""

    def quotas_in(self, namespace: str) -> Iterable[ModelCacheQuotaView]:
        """The ModelCacheQuotas of a namespace, by name."""

    def quota(self, key: ObjectKey) -> ModelCacheQuotaView | None:
        """The ModelCacheQuota of that name."""

    def nodes(self) -> Iterable[NodeView]:
        """All Nodes."""

    def cache_nodes(self) -> Iterable[CacheNodeView]:
        """All CacheNodes."""

    def accusers_of(self, node_uid: Uid) -> Iterable[CacheNodeView]:
        """The CacheNodes whose agents say that this Node's agent served them wrong bytes."""

    def caches_of_version(self, key: ObjectKey) -> Iterable[ObjectKey]:
        """The ModelCaches whose spec names that ModelVersion."""

    def pod(self, key: ObjectKey) -> PodView | None:
        """The pod of that name, if it names a ModelCache."""

    def pods(self) -> Iterable[PodView]:
        """All pods that name a ModelCache."""

    def pods_on(self, node: NodeName) -> Iterable[PodView]:
        """The pods bound to a node that name a ModelCache."""

    def pods_of(self, cache: ObjectKey) -> Iterable[PodView]:
        """The pods that name the ModelCache."""
