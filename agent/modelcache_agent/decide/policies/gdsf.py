"""Greedy dual size frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.decide.policies.policy import AdmitsAll, Ranked, order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


@dataclass(frozen=True, slots=True)
class GreedyDualSizeFrequency(AdmitsAll):
    """clock + visits * cost / size.

    The formula is that of L. Cherkasova, "Improving WWW Proxies Performance with
    Greedy-Dual-Size-Frequency Caching Policy", HP Laboratories, report HPL-98-69R1, 1998. Cost is
    the seconds to load the content again. The clock is the highest priority of all that was ever
    evicted, and each content keeps what it showed at its last visit: so what is not visited any
    more falls behind without being counted down. Arrival is the first visit.
    """

    name: str = "gdsf"

    def rank(self, candidates: Iterable[Held]) -> tuple[Ranked, ...]:
        """All candidates, lowest priority first."""
        return order(
            Ranked(
                held,
                find_priority(held),
                f"clock={held.history.inflation:.3g} visits={max(1, held.history.visits)} "
                f"load_seconds={held.load_seconds:.3g} bytes={held.size_bytes}",
            )
            for held in candidates
        )


def find_priority(held: Held) -> float:
    """The content's priority; also what the clock moves to when it is evicted."""
    visits = max(1, held.history.visits)
    return held.history.inflation + visits * held.load_seconds / max(1, held.size_bytes)
