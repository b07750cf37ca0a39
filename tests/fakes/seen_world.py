"""ports.world from plain dictionaries that a test writes."""

from __future__ import annotations

from collections.abc import Sequence

from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheNodeStatus, EntrySpec
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    Uid,
    Unreadable,
)


class SeenWorld:
    """What a watch cache would have seen."""

    def __init__(self) -> None:
        self.is_synced = True
        self.unreadable = Unreadable()
        self.nodes: dict[str, NodeView] = {}
        self.cache_nodes: dict[str, CacheNodeView] = {}
        self.versions: dict[str, ModelVersionView] = {}
        self.caches: dict[ObjectKey, ModelCacheView] = {}

    def add_node(self, name: str, uid: str, entries: Sequence[EntrySpec] = ()) -> None:
        self.nodes[name] = NodeView(NodeName(name), Uid(uid), {})
        spec = CacheNodeSpec(node_uid=uid, entries=tuple(entries))
        self.cache_nodes[name] = CacheNodeView(
            NodeName(name), Uid(f"cn-{name}"), spec, CacheNodeStatus()
        )

    def node(self, name: NodeName) -> NodeView | None:
        return self.nodes.get(name)

    def cache_node(self, name: NodeName) -> CacheNodeView | None:
        return self.cache_nodes.get(name)

    def model_version(self, uid: Uid) -> ModelVersionView | None:
        return self.versions.get(uid)

    def model_version_named(self, key: ObjectKey) -> ModelVersionView | None:
        return next((one for one in self.versions.values() if one.key == key), None)

    def model_cache(self, key: ObjectKey) -> ModelCacheView | None:
        return self.caches.get(key)

    def nodes_of_entry(self, uid: Uid) -> list[CacheNodeView]:
        return [node for node in self.cache_nodes.values() if node.spec.find_entry(uid)]
