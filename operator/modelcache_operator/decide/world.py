"""Observed objects as frozen values: parsed once at the border, read by every decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NewType

from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheNodeStatus
from modelcache_api.v1alpha1.model_cache import ModelCacheSpec, ModelCacheStatus, Toleration
from modelcache_api.v1alpha1.model_cache_quota import ModelCacheQuotaSpec, ModelCacheQuotaStatus
from modelcache_api.v1alpha1.model_version import ModelVersionSpec, ModelVersionStatus

NodeName = NewType("NodeName", str)
Uid = NewType("Uid", str)


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Namespace and name; unambiguous where a joined string would not be."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ModelVersionView:
    """A ModelVersion as observed."""

    key: ObjectKey
    uid: Uid
    generation: int
    spec: ModelVersionSpec
    status: ModelVersionStatus
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class ModelCacheView:
    """A ModelCache as observed."""

    key: ObjectKey
    uid: Uid
    generation: int
    spec: ModelCacheSpec
    status: ModelCacheStatus
    is_deleted: bool = False
    created_at: str = ""


@dataclass(frozen=True, slots=True)
class ModelCacheQuotaView:
    """A ModelCacheQuota as observed."""

    key: ObjectKey
    uid: Uid
    generation: int
    spec: ModelCacheQuotaSpec
    status: ModelCacheQuotaStatus
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class CacheNodeView:
    """A CacheNode as observed; its name is the Node's."""

    name: NodeName
    uid: Uid
    spec: CacheNodeSpec
    status: CacheNodeStatus


@dataclass(frozen=True, slots=True)
class TaintView:
    """A taint of a Node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """What placement needs of a Node."""

    name: NodeName
    uid: Uid
    labels: Mapping[str, str]
    taints: tuple[TaintView, ...] = ()
    is_unschedulable: bool = False
    is_ready: bool = True
    has_disk_pressure: bool = False
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Objects that are there but say what this operator does not understand.

    A newer release has written them. They are not absent: whatever hangs on them is left as it is
    until they can be read.
    """

    versions: Mapping[Uid, ObjectKey] = field(default_factory=dict)
    caches: Mapping[Uid, ObjectKey] = field(default_factory=dict)
    cache_nodes: frozenset[NodeName] = frozenset()
    nodes: frozenset[NodeName] = frozenset()
    quotas: Mapping[Uid, ObjectKey] = field(default_factory=dict)

    def has_version(self, key: ObjectKey) -> bool:
        """True if a ModelVersion of that name is there."""
        return key in self.versions.values()

    def has_cache(self, key: ObjectKey) -> bool:
        """True if a ModelCache of that name is there."""
        return key in self.caches.values()


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """One expression about a node's labels, or its name; by the rules of node affinity."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Requirements that must all hold."""

    labels: tuple[NodeRequirement, ...] = ()
    fields: tuple[NodeRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """On which nodes a pod may run. `terms` is None without required node affinity."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod that names a ModelCache of its namespace. `constraints` are of gated pods alone.

    `is_cold` while its warm-up has not succeeded; `warm_up_failure` is how that last failed.
    """

    key: ObjectKey
    uid: Uid
    cache: ObjectKey
    track: str
    node: NodeName | None = None
    created_at: str = ""
    is_gated: bool = False
    is_over: bool = False
    is_ready: bool = False
    is_terminating: bool = False
    is_cold: bool = False
    warm_up_failure: str | None = None
    constraints: PodConstraints | None = None


@dataclass(frozen=True, slots=True)
class AgentLeaseView:
    """The Lease of one node's agent. `renewed_at` is the agent's clock."""

    node: NodeName
    node_uid: Uid
    renewed_at: datetime
