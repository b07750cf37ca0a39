"""The copies of one ModelCache as their nodes report them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from modelcache_api.names import EntryState, Reason, Tier
from modelcache_api.v1alpha1.cache_node import EntryStatus
from modelcache_operator.decide.node_book import is_held_in
from modelcache_operator.decide.placement import Books
from modelcache_operator.decide.world import NodeName, Uid

# What a verified copy says of itself while nothing is wrong with it.
_QUIET_REASONS = frozenset({"", Reason.CACHED.value, Reason.LOADING.value})
_IN_PROGRESS = (EntryState.VERIFYING, EntryState.DOWNLOADING, EntryState.PENDING)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy on a live node. `entry` is None until the agent has taken notice of it."""

    node: NodeName
    entry: EntryStatus | None

    @property
    def state(self) -> EntryState:
        """Its state; Pending while nothing is reported."""
        return self.entry.state if self.entry else EntryState.PENDING

    @property
    def progress_percent(self) -> int:
        """Share of the bytes in place."""
        if self.state is EntryState.CACHED:
            return 100
        return self.entry.progress_percent if self.entry else 0


@dataclass(frozen=True, slots=True)
class CopyTally:
    """The copies of one ModelCache on live nodes, sorted by node. `tier` is the one it wants."""

    wanted: int
    copies: tuple[Copy, ...]
    tier: Tier = Tier.DISK

    @property
    def ready(self) -> int:
        """Verified copies."""
        return self._count(EntryState.CACHED)

    @property
    def in_tier(self) -> int:
        """Verified copies in the wanted tier or a faster one."""
        return sum(self._is_in_tier(copy) for copy in self.copies)

    @property
    def refused_by_tier(self) -> Copy | None:
        """A verified copy whose agent says why the wanted tier does not hold it, or None."""
        for copy in self.copies:
            if copy.state is not EntryState.CACHED or self._is_in_tier(copy):
                continue
            if copy.entry and copy.entry.reason not in _QUIET_REASONS:
                return copy
        return None

    @property
    def evicted(self) -> int:
        """Copies that were given up for others."""
        return self._count(EntryState.EVICTED)

    @property
    def failures(self) -> tuple[Copy, ...]:
        """Copies whose agent reports a failure."""
        return tuple(copy for copy in self.copies if copy.state is EntryState.FAILED)

    @property
    def pressed(self) -> tuple[Copy, ...]:
        """Copies that were given up under disk pressure, while it lasts."""
        return tuple(
            copy
            for copy in self.copies
            if copy.state is EntryState.EVICTED
            and copy.entry is not None
            and copy.entry.reason == Reason.DISK_PRESSURE
        )

    @property
    def furthest(self) -> EntryState | None:
        """The most advanced state of the copies that are on their way, or None."""
        states = {copy.state for copy in self.copies}
        return next((state for state in _IN_PROGRESS if state in states), None)

    @property
    def queued(self) -> str | None:
        """Why copies wait for a limit of the fleet, in one node's words; None if none does."""
        entries = (copy.entry for copy in self.copies if copy.state is EntryState.PENDING)
        return next((e.message for e in entries if e and e.reason == Reason.QUEUED), None)

    @property
    def progress_tenths(self) -> int:
        """Share of all wanted bytes in place, in tenths, rounded down."""
        if not self.wanted:
            return 0
        percent = sum(copy.progress_percent for copy in self.copies)
        return min(100, percent // self.wanted) // 10

    def _is_in_tier(self, copy: Copy) -> bool:
        return copy.entry is not None and is_held_in(copy.entry, self.tier)

    def _count(self, state: EntryState) -> int:
        return sum(copy.state is state for copy in self.copies)


def tally_copies(
    version: Uid,
    live: Iterable[NodeName],
    wanted: int,
    books: Books,
    tier: Tier = Tier.DISK,
) -> CopyTally:
    """What the live nodes report of the version. A dead node's last words do not count."""
    copies = tuple(Copy(name, books[name].reported.get(version)) for name in sorted(live))
    return CopyTally(wanted, copies, tier)
