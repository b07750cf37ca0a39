"""What it would cost pods if the content were gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.decide.policies.policy import Ranked, order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


@dataclass(frozen=True, slots=True)
class LeastValue:
    """attaches * seconds to load it again / bytes.

    Attaches halve with every 48 hours, and are 1 at least until the last pod on the node is gone.
    """

    name: str = "value"

    def rank(self, candidates: Iterable[Held]) -> tuple[Ranked, ...]:
        """All candidates, the one that is worth least for each of its bytes first."""
        return order(
            Ranked(
                held,
                held.history.attaches * held.load_seconds / max(1, held.size_bytes),
                f"attaches={held.history.attaches:.3f} load_seconds={held.load_seconds:.3g} "
                f"bytes={held.size_bytes}",
            )
            for held in candidates
        )
