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
                _weigh(held) / max(1, held.size_bytes),
                f"attaches={held.history.attaches:.3f} load_seconds={held.load_seconds:.3g} "
                f"bytes={held.size_bytes}",
            )
            for held in candidates
        )

    def refuse(self, newcomer: Held, victims: Iterable[Held]) -> str | None:
        """Pods would wait longer for the victims than for the newcomer."""
        worth, lost = _weigh(newcomer), sum(_weigh(held) for held in victims)
        if lost <= worth:
            return None
        return f"what would give way saves {lost:.3g} s of loading, the newcomer {worth:.3g} s"


def _weigh(held: Held) -> float:
    """Seconds that pods would wait for it, as often as they attached it of late."""
    return held.history.attaches * held.load_seconds
