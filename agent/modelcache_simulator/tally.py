"""What a run showed, counted while it goes: memory grows with hours and models, not attaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from modelcache_simulator.levels import STORE, mean_access_time
from modelcache_simulator.node import Access
from modelcache_simulator.slab import Slab

_HOUR = 3600.0


@dataclass(slots=True)
class Hour:
    """One hour of the trace; `used_bytes` by tier and `fragmentation` are as at its last attach."""

    attaches: int = 0
    load_seconds: float = 0.0
    used_bytes: Mapping[str, int] = field(default_factory=dict)
    fragmentation: float | None = None


@dataclass(slots=True)
class Tally:
    """The sums of one run over `tiers`, fastest first."""

    tiers: tuple[str, ...]
    attaches: Counter[str] = field(default_factory=Counter)
    size_bytes: Counter[str] = field(default_factory=Counter)
    access_seconds: dict[str, float] = field(default_factory=dict)
    waits: Counter[float] = field(default_factory=Counter)
    evictions: int = 0
    bypasses: int = 0
    refusals: int = 0
    first_at: float | None = None
    last_at: float = 0.0
    hours: dict[int, Hour] = field(default_factory=dict)
    fragmentation: float | None = None
    """The sum over attaches."""
    moved_bytes: int = 0

    def note_slab(self, at: float, slab: Slab) -> None:
        """Count how the card's memory is at an attach that was noted."""
        self.fragmentation = (self.fragmentation or 0.0) + slab.fragmentation
        self.moved_bytes = slab.moved_bytes
        self.hours[int(at // _HOUR)].fragmentation = slab.fragmentation

    def note(self, at: float, access: Access, used_bytes: Mapping[str, int]) -> None:
        """Count one attach."""
        self.attaches[access.found] += 1
        self.size_bytes[access.found] += access.size_bytes
        spent = self.access_seconds.get(access.found, 0.0)
        self.access_seconds[access.found] = spent + access.access_seconds
        self.waits[access.load_seconds] += 1
        self.evictions += access.evictions
        self.bypasses += access.bypasses
        self.refusals += access.refusals
        if self.first_at is None:
            self.first_at = at
        self.last_at = at
        hour = self.hours.setdefault(int(at // _HOUR), Hour())
        hour.attaches += 1
        hour.load_seconds += access.load_seconds
        hour.used_bytes = used_bytes

    def summarise(self) -> Summary:
        """The figures of the run; zeros where nothing was attached."""
        total = self.attaches.total()
        of_bytes = self.size_bytes.total()
        load_seconds = sum(seconds * count for seconds, count in self.waits.items())
        hours = (self.last_at - (self.first_at or 0.0)) / _HOUR
        return Summary(
            attaches=total,
            hit_rates={tier: _share(self.attaches[tier], total) for tier in self.tiers},
            byte_hit_rates={tier: _share(self.size_bytes[tier], of_bytes) for tier in self.tiers},
            mean_access_seconds=self._mean_access_time(),
            load_seconds=load_seconds,
            load_seconds_per_attach=_share(load_seconds, total),
            load_seconds_p95=find_quantile(self.waits, 0.95),
            load_seconds_p99=find_quantile(self.waits, 0.99),
            evictions_per_hour=_share(self.evictions, hours),
            bypasses=self.bypasses,
            refusals=self.refusals,
            store_bytes=self.size_bytes[STORE],
            fragmentation=None if self.fragmentation is None else self.fragmentation / total,
            moved_bytes=self.moved_bytes,
        )

    def _mean_access_time(self) -> float:
        left = self.attaches.total()
        rates, seconds = [], []
        for tier in self.tiers:
            rates.append(_share(self.attaches[tier], left))
            seconds.append(self._mean_seconds(tier))
            left -= self.attaches[tier]
        return mean_access_time(rates, seconds, self._mean_seconds(STORE))

    def _mean_seconds(self, found: str) -> float:
        return _share(self.access_seconds.get(found, 0.0), self.attaches[found])


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in figures. Rates are shares of all attaches (or their bytes), from 0 to 1.

    `load_seconds` are what pods waited because the fastest tier did not hold their model;
    `bypasses` the newcomers that a policy left out, `refusals` those that found no room.
    `fragmentation` is the mean over attaches, `moved_bytes` what compaction moved; None and 0
    without a card.
    """

    attaches: int
    hit_rates: Mapping[str, float]
    byte_hit_rates: Mapping[str, float]
    mean_access_seconds: float
    load_seconds: float
    load_seconds_per_attach: float
    load_seconds_p95: float
    load_seconds_p99: float
    evictions_per_hour: float
    bypasses: int
    refusals: int
    store_bytes: int
    fragmentation: float | None = None
    moved_bytes: int = 0


def find_quantile(counts: Mapping[float, int], share: float) -> float:
    """The least value that at least this share of all do not exceed; 0 of nothing."""
    needed = share * sum(counts.values())
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= needed:
            return value
    return 0.0


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
