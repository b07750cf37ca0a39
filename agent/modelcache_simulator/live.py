"""What the arrivals in an agent's log let one expect, beside what the agent measured. Pure.

The node begins as the agent saw it before the first arrival. From there on only arrivals and
releases are played, on the disk's tier: who is held, who goes and who waits is decided anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from statistics import StatisticsError, fmean, linear_regression
from typing import Final

from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.policies import EvictionPolicy, find_policy
from modelcache_agent.decide.world import World
from modelcache_agent.inputs.records import Decided, Header, Record
from modelcache_simulator.agent_log import (
    Arrival,
    find_log_sizes,
    list_arrivals,
    list_releases,
)
from modelcache_simulator.contents import Content, make_known_content
from modelcache_simulator.levels import DISK
from modelcache_simulator.tier import SimulatedTier, TierPlan, VirtualClock

_FREE: Final = LoadCost(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Loads are transfers that a pod waited for, seconds the sums of what all pods waited."""

    attaches: int
    predicted_loads: int
    measured_loads: int
    predicted_seconds: float
    measured_seconds: float

    @property
    def error(self) -> float:
        """How much more was predicted, as a share of what was measured; 0 if nobody waited."""
        if not self.measured_seconds:
            return 0.0
        return self.predicted_seconds / self.measured_seconds - 1


def predict(records: Sequence[Record]) -> Prediction | None:
    """None: nobody arrived, or no decision says how the node was.

    What a load takes is what loads took in this log, as a line over sizes: how fast the store is
    cannot be told from arrivals.
    """
    arrivals = list_arrivals(records)
    seen = [one for one in records if isinstance(one, Decided)]
    if not arrivals or not seen:
        return None
    loads = list_loads(arrivals)
    start = next((one for one in reversed(seen) if one.at <= arrivals[0].at), seen[0])
    policy = next(one.policy for one in records if isinstance(one, Header))
    play = _Play(start.world, find_policy(policy), fit_cost(loads), find_log_sizes(records))
    play.begin(start.at)
    play.run(arrivals, list_releases(records))
    return Prediction(
        attaches=len(arrivals),
        predicted_loads=play.loads,
        measured_loads=len(loads),
        predicted_seconds=play.waited_seconds,
        measured_seconds=sum(one.waited_seconds for one in arrivals),
    )


def list_loads(arrivals: Iterable[Arrival]) -> tuple[Arrival, ...]:
    """Of each transfer the first pod that waited for it; who came during it is not another one."""
    done_at: dict[str, float] = {}
    loads = []
    for one in arrivals:
        if one.waited_seconds <= 0:
            continue
        if one.at >= done_at.get(one.digest, float("-inf")):
            loads.append(one)
        done_at[one.digest] = max(one.shown_at, done_at.get(one.digest, one.shown_at))
    return tuple(loads)


def fit_cost(loads: Sequence[Arrival]) -> LoadCost:
    """Seconds to begin and for each byte, by least squares; loads of one size have a start only."""
    if not loads:
        return _FREE
    sizes = [float(one.size_bytes) for one in loads]
    seconds = [one.waited_seconds for one in loads]
    try:
        per_byte, start = linear_regression(sizes, seconds)
    except StatisticsError:
        return LoadCost(fmean(seconds), 0.0)
    if per_byte < 0:
        return LoadCost(fmean(seconds), 0.0)
    if start < 0:
        return LoadCost(0.0, sum(seconds) / sum(sizes))
    return LoadCost(start, per_byte)


class _Kind(IntEnum):
    """In this order, where two happen at once."""

    RELEASE = 0
    ATTACH = 1
    ARRIVAL = 2


@dataclass(slots=True)
class _Play:
    world: World
    policy: EvictionPolicy
    cost: LoadCost
    sizes: Mapping[str, int]
    loads: int = 0
    waited_seconds: float = 0.0
    _clock: VirtualClock = field(default_factory=VirtualClock)
    _events: list[tuple[float, _Kind, str]] = field(default_factory=list)
    _contents: dict[str, Content] = field(default_factory=dict)
    _ready_at: dict[str, float] = field(default_factory=dict)
    _waiting: dict[str, int] = field(default_factory=dict)
    _tier: SimulatedTier = field(init=False)

    def begin(self, at: float) -> None:
        self._clock.now = at
        plan = TierPlan(
            DISK,
            self.world.ledger.capacity_bytes,
            load=self.cost,
            may_bypass=False,
            protects_attached=True,
        )
        self._tier = SimulatedTier(plan, self.policy, self._clock)
        for held in self.world.held:
            if held.is_verified:
                content = self._find(held.digest, held.size_bytes)
                is_attached = held.digest in self.world.mounted
                self._tier.hold(content, held.last_used, held.history, is_attached=is_attached)

    def run(self, arrivals: Iterable[Arrival], releases: Iterable[tuple[float, str]]) -> None:
        self._events = [(one.at, _Kind.ARRIVAL, one.digest) for one in arrivals]
        self._events += [(at, _Kind.RELEASE, digest) for at, digest in releases]
        heapq.heapify(self._events)
        while self._events:
            at, kind, digest = heapq.heappop(self._events)
            self._clock.now = max(self._clock.now, at)
            match kind:
                case _Kind.ARRIVAL:
                    self._arrive(self._take_arrivals(at, digest))
                case _Kind.ATTACH:
                    self._show(digest, most=1)
                case _Kind.RELEASE:
                    # Whom we still let wait was shown it before it was gone.
                    self._show(digest, most=self._waiting.get(digest, 0))
                    if digest in self._contents:
                        self._tier.release(self._contents[digest])

    def _take_arrivals(self, at: float, digest: str) -> list[Content]:
        """All that the agent's look at this moment saw, what is held first: it makes no way now."""
        together = [digest]
        while self._events and self._events[0][:2] == (at, _Kind.ARRIVAL):
            together.append(heapq.heappop(self._events)[2])
        contents = [self._find(each, self.sizes[each]) for each in together]
        return sorted(contents, key=lambda content: content not in self._tier)

    def _arrive(self, contents: Iterable[Content]) -> None:
        now = self._clock.now
        for content in contents:
            digest = content.digest
            if content not in self._tier:
                self._tier.offer(content)
                self.loads += 1
                self._ready_at[digest] = now + self.cost.seconds(content.size_bytes)
            ready_at = max(now, self._ready_at.get(digest, now))
            self.waited_seconds += ready_at - now
            self._waiting[digest] = self._waiting.get(digest, 0) + 1
            if ready_at == now:
                self._show(digest, most=1)
            else:
                heapq.heappush(self._events, (ready_at, _Kind.ATTACH, digest))

    def _show(self, digest: str, most: int) -> None:
        """Pods that waited are shown it, unless that was done when it was released."""
        shown = min(most, self._waiting.get(digest, 0))
        for _ in range(shown):
            self._tier.attach(self._contents[digest])
        self._waiting[digest] = self._waiting.get(digest, 0) - shown

    def _find(self, digest: str, size_bytes: int) -> Content:
        if digest not in self._contents:
            self._contents[digest] = make_known_content(digest, size_bytes)
        return self._contents[digest]
