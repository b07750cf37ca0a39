"""Who goes first, without looking at everybody: an index behind a policy's own scores.

Scores of most policies do not change between two uses of a content, or all fall by the same
factor meanwhile. Then the order stays, and a heap finds the first ones in O(log n). The policy
itself ranks what the heap proposes, and those next to it whose scores differ by rounding only:
so the outcome is that of ranking all, as long as scores have the full precision of floats
(contents that nobody attached for a thousand half-lives are all worth the same nothing).
A policy that compares contents with one another, as `lrfu`, is asked about all: O(n log n).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from modelcache_agent.decide.history import HALF_LIFE_ATTACHES, HALF_LIFE_SECONDS
from modelcache_agent.decide.policies import EvictionPolicy
from modelcache_agent.decide.world import Held

# How far rounding may move a score's logarithm.
_TIE: Final = 1e-6


class Moment(NamedTuple):
    """When something is looked at: seconds, and attaches on the node until then."""

    now: float
    turn: int


# (score or its logarithm, last use, digest, stamp)
_Entry = tuple[float, float, str, int]
_Ageing = Callable[[Moment], float]
_AGEING: Final[Mapping[str, _Ageing | None]] = {
    "lru": None,
    "fifo": None,
    "gdsf": None,
    "belady": None,
    "lfu": lambda moment: moment.turn / HALF_LIFE_ATTACHES,
    "value": lambda moment: moment.now / HALF_LIFE_SECONDS,
}


class CandidateOrder:
    """The contents that may go, by their policy. `look` tells of one what the policy may know."""

    def __init__(self, policy: EvictionPolicy, look: Callable[[str], Held]) -> None:
        self._policy = policy
        self._look = look
        self._ages = policy.name in _AGEING
        self._ageing = _AGEING.get(policy.name)
        self._stamps: dict[str, int] = {}
        self._stamp = 0
        self._heap: list[_Entry] = []

    def put(self, digest: str, moment: Moment) -> None:
        """The content may go; its history changed."""
        self._stamp += 1
        self._stamps[digest] = self._stamp
        if not self._ages:
            return
        held = self._look(digest)
        entry = (self._key(held, moment), held.last_used, digest, self._stamp)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 64 + 2 * len(self._stamps):
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def discard(self, digest: str) -> None:
        """The content may not go, or is gone."""
        self._stamps.pop(digest, None)

    def find_first(self, needed_bytes: int) -> tuple[Held, ...]:
        """Those that go first and free so much, among them all that may be victims for it.

        `needed_bytes` is above 0. All there are if they are too few. What the policy's own code
        chooses among these is what it would choose among all, as contents share no bytes.
        """
        if not self._ages:
            return tuple(self._look(digest) for digest in self._stamps)
        found: list[Held] = []
        taken: list[_Entry] = []
        freed = 0
        while self._heap:
            entry = self._heap[0]
            if not self._is_current(entry):
                heapq.heappop(self._heap)
                continue
            if freed >= needed_bytes and not self._may_tie(taken[-1], entry):
                break
            taken.append(heapq.heappop(self._heap))
            held = self._look(entry[2])
            found.append(held)
            freed += held.size_bytes
        for entry in taken:
            heapq.heappush(self._heap, entry)
        return tuple(found)

    def _key(self, held: Held, moment: Moment) -> float:
        (ranked,) = self._policy.rank((held,))
        if self._ageing is None:
            return ranked.score
        if ranked.score <= 0:
            return -math.inf
        return math.log2(ranked.score) + self._ageing(moment)

    def _may_tie(self, last: _Entry, entry: _Entry) -> bool:
        return self._ageing is not None and entry[0] - last[0] <= _TIE

    def _is_current(self, entry: _Entry) -> bool:
        return self._stamps.get(entry[2]) == entry[3]
