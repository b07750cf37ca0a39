"""What it would cost pods if the content were gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.policies.policy import Ranked, order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


# What is not used for n times as long is believed to have 1/n attaches at most. Chosen on the first
# half of a recorded trace (docs/policies-on-a-trace.md).
_SILENCE_SECONDS: Final = 6 * 3600.0


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

    def refuse(self, newcomer: Held, victims: Iterable[Held]) -> str | None:
        """Pods would wait longer for the victims than for the newcomer."""
        worth = newcomer.history.attaches * newcomer.load_seconds
        now = newcomer.last_used
        lost = sum(_bound_attaches(held, now) * held.load_seconds for held in victims)
        if lost <= worth:
            return None
        return f"what would give way saves {lost:.3g} s of loading, the newcomer {worth:.3g} s"


def _bound_attaches(held: Held, now: float) -> float:
    """Its attaches, and fewer once it is silent.

    A burst counts for days, and would keep newcomers out long after it is over. Who is not used for
    some hours is not attached more often than once in so many; so silence is a bound.
    """
    silent = max(0.0, now - held.last_used)
    if silent * held.history.attaches <= _SILENCE_SECONDS:
        return held.history.attaches
    return _SILENCE_SECONDS / silent
