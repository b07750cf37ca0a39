"""What the work queue holds: names of things to look at, never what happened to them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modelcache_operator.decide.world import NodeName, ObjectKey


class KeyKind(StrEnum):
    """Kinds of things to look at. Also a metric label."""

    VERSION = "version"
    CACHE = "cache"
    QUOTA = "quota"
    NODE = "node"
    POD = "pod"
    ROUTE = "route"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One thing to look at. `namespace` is empty for nodes and the sweep."""

    kind: KeyKind
    namespace: str
    name: str

    @property
    def object_key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    def __str__(self) -> str:
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind}:{path}"


SWEEP = Key(KeyKind.SWEEP, "", "orphans")


def version_key(key: ObjectKey) -> Key:
    """Look at a ModelVersion."""
    return Key(KeyKind.VERSION, key.namespace, key.name)


def cache_key(key: ObjectKey) -> Key:
    """Look at a ModelCache."""
    return Key(KeyKind.CACHE, key.namespace, key.name)


def route_key(key: ObjectKey) -> Key:
    """Look at the HTTPRoute that a ModelCache names."""
    return Key(KeyKind.ROUTE, key.namespace, key.name)


def quota_key(key: ObjectKey) -> Key:
    """Look at a ModelCacheQuota; without a name, at the default of the namespace."""
    return Key(KeyKind.QUOTA, key.namespace, key.name)


def node_key(name: NodeName) -> Key:
    """Look at a node."""
    return Key(KeyKind.NODE, "", name)


def pod_key(key: ObjectKey) -> Key:
    """Look at a gated pod."""
    return Key(KeyKind.POD, key.namespace, key.name)
