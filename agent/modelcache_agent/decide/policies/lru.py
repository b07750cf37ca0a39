"""Least recently used first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


@dataclass(frozen=True, slots=True)
class LeastRecentlyUsed:
    """By time of last use; ties by digest, so that two runs choose alike."""

    def order(self, candidates: Iterable[Held]) -> tuple[Held, ...]:
        """All candidates, longest unused first."""
        return tuple(sorted(candidates, key=lambda held: (held.last_used, held.digest)))
