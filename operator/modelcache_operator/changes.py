"""What the watch cache tells: one object before and after. Equal views are never told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeView,
    PodView,
)

View = ModelVersionView | ModelCacheView | ModelCacheQuotaView | CacheNodeView | NodeView | PodView


@dataclass(frozen=True, slots=True)
class Changed:
    """One object has changed: appeared (`old` None), differs, or is gone (`new` None)."""

    old: View | None
    new: View | None

    @property
    def view(self) -> View:
        """The latest that is known of it."""
        view = self.new if self.new is not None else self.old
        if view is None:
            raise ValueError("a change without an object")
        return view


Listener = Callable[[Changed], None]
