"""The observed world, read from memory."""

from __future__ import annotations

from typing import Protocol

from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelVersionView,
    NodeName,
    NodeView,
    Uid,
)


class WorldReader(Protocol):
    """Single objects of the watch cache. No method does I/O; absent objects are None."""

    @property
    def is_synced(self) -> bool:
        """True once the first lists are complete: from then on, absence means something."""

    def cache_node(self, name: NodeName) -> CacheNodeView | None:
        """The CacheNode of that node, as last seen."""

    def node(self, name: NodeName) -> NodeView | None:
        """The Node, as last seen; None if it is gone."""

    def model_version(self, uid: Uid) -> ModelVersionView | None:
        """The ModelVersion with that UID, as last seen; None if it is gone."""
