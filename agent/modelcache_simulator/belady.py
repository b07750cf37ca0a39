"""The policy that knows the trace's end: what goes is what is needed again last.

It is the bound that others are compared with, not the best possible: with sizes and costs that
differ, the best is hard to compute (L. Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966, is about pages of one size).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import inf
from typing import Final

from modelcache_agent.decide.policies.policy import Ranked, order
from modelcache_agent.decide.world import Held
from modelcache_simulator.sessions import Attach, Event

BELADY: Final = "belady"


class Belady:
    """Ranks by the next attach, furthest first; leaves out whoever is needed after its victims."""

    name = BELADY

    def __init__(self, next_attaches: array[float]) -> None:
        self._next = next_attaches
        self._place = 0
        self._needed_at: dict[str, float] = {}

    def note_attach(self, digest: str) -> None:
        """The next attach of the trace is one of this content, and happens now."""
        self._needed_at[digest] = self._next[self._place]
        self._place += 1

    def rank(self, candidates: Iterable[Held]) -> tuple[Ranked, ...]:
        """All candidates, what is needed last first."""
        return order(
            Ranked(held, -self._needed_at[held.digest], f"at={self._needed_at[held.digest]:.0f}")
            for held in candidates
        )

    def refuse(self, newcomer: Held, victims: Iterable[Held]) -> str | None:
        """A victim is needed before the newcomer is needed again."""
        again = self._needed_at[newcomer.digest]
        if all(self._needed_at[held.digest] >= again for held in victims):
            return None
        return "what would give way is needed earlier"


def list_next_attaches(events: Iterable[Event]) -> array[float]:
    """For each attach of a trace in order, when the same model is attached again (inf: never).

    Twelve bytes an attach while it is made, eight afterwards.
    """
    numbers: dict[str, int] = {}
    models, found = array("i"), array("d")
    for event in events:
        if isinstance(event, Attach):
            models.append(numbers.setdefault(event.model, len(numbers)))
            found.append(event.at)
    later = [inf] * len(numbers)
    for place in reversed(range(len(found))):
        found[place], later[models[place]] = later[models[place]], found[place]
    return found
