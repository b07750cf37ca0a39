"""Recency and frequency in one score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.decide.history import HALF_LIFE_SECONDS, decay
from modelcache_agent.decide.policies.policy import AdmitsAll, Ranked, order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


@dataclass(frozen=True, slots=True)
class RecencyAndFrequency(AdmitsAll):
    """alpha * recency + (1 - alpha) * frequency, both from 0 to 1 among the candidates.

    Recency is 1 for the last used and halves with every 48 hours that another was used before it;
    frequency is the share of the most frequent one's attaches. Recency in proportion of the oldest
    candidate's age would be LRU again: a scan of an hour would make a hot set old.
    """

    alpha: float = 0.7
    name: str = "lrfu"

    def rank(self, candidates: Iterable[Held]) -> tuple[Ranked, ...]:
        """All candidates, lowest score first."""
        contents = tuple(candidates)
        newest = max((held.last_used for held in contents), default=0.0)
        most = max((held.history.attaches for held in contents), default=0.0)
        return order(
            self._score(
                held,
                recency=decay(1.0, newest - held.last_used, HALF_LIFE_SECONDS),
                frequency=held.history.attaches / most if most else 0.0,
            )
            for held in contents
        )

    def _score(self, held: Held, *, recency: float, frequency: float) -> Ranked:
        score = self.alpha * recency + (1 - self.alpha) * frequency
        return Ranked(held, score, f"recency={recency:.3f} frequency={frequency:.3f}")
