"""What is remembered of a content: how often pods attached it, and what loading it costs. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

# A model that pods ask for once a day keeps most of its weight over a weekend.
HALF_LIFE_SECONDS: Final = 48 * 3600.0
# So many attaches on the node halve all earlier ones, however long they took.
HALF_LIFE_ATTACHES: Final = 128.0
# How much a new measurement counts against all earlier ones.
_SHARE_OF_NEWEST: Final = 0.5


@dataclass(frozen=True, slots=True)
class LoadCost:
    """What a transfer to this node takes: seconds before the first byte, and for each byte."""

    start_seconds: float
    seconds_per_byte: float

    def seconds(self, size_bytes: int) -> float:
        """Seconds to load so many bytes."""
        return self.start_seconds + size_bytes * self.seconds_per_byte

    def blend(self, older: LoadCost | None) -> LoadCost:
        """This measurement and what was known before: one slow hour does not decide."""
        if older is None:
            return self
        share = _SHARE_OF_NEWEST
        return LoadCost(
            share * self.start_seconds + (1 - share) * older.start_seconds,
            share * self.seconds_per_byte + (1 - share) * older.seconds_per_byte,
        )


# Until a transfer was measured all contents cost alike per byte, so this decides nothing.
NOT_MEASURED: Final = LoadCost(0.0, 1e-9)


def measure_load(
    elapsed_seconds: float, between_seconds: float, between_bytes: int, total_bytes: int
) -> LoadCost | None:
    """The cost by two reports of one transfer, and by how long all of it took.

    None: less than half came between them, because it was resumed or was over at once.
    """
    if between_seconds <= 0 or 2 * between_bytes < total_bytes or between_bytes <= 0:
        return None
    per_byte = between_seconds / between_bytes
    return LoadCost(max(0.0, elapsed_seconds - total_bytes * per_byte), per_byte)


@dataclass(frozen=True, slots=True)
class History:
    """One content, as of the moment the store was looked at.

    `arrived` is in Unix seconds. `attaches` halve with every 48 hours, `recent_attaches` with every
    128 attaches on the node; `visits` are those since it arrived. `inflation` is what the clock of
    `gdsf` showed at the last of them.
    """

    arrived: float = 0.0
    attaches: float = 0.0
    recent_attaches: float = 0.0
    visits: int = 0
    inflation: float = 0.0
    load: LoadCost = NOT_MEASURED


NO_HISTORY: Final = History()


@dataclass(frozen=True, slots=True)
class Past:
    """A content's history as it is kept, which outlives the content.

    `attaches` hold for the moment `counted_at` (Unix seconds), `recent_attaches` for the node's
    attach number `counted_turn`.
    """

    arrived: float
    attaches: float = 0.0
    counted_at: float = 0.0
    recent_attaches: float = 0.0
    counted_turn: int = 0
    visits: int = 0
    inflation: float = 0.0
    load: LoadCost | None = None

    def attach(self, now: float, turn: int, inflation: float) -> Past:
        """A pod's volume shows it now; this was the node's attach number `turn`."""
        return replace(
            self,
            attaches=1.0 + self._attaches(now),
            counted_at=now,
            recent_attaches=1.0 + self._recent_attaches(turn),
            counted_turn=turn,
            visits=self.visits + 1,
            inflation=inflation,
        )

    def keep_running(self, now: float) -> Past:
        """While a pod shows it, it counts as one attach at least, however long ago that was."""
        return replace(self, attaches=max(1.0, self._attaches(now)), counted_at=now)

    def arrive(self, now: float, inflation: float) -> Past:
        """It was published; what was counted before it was evicted still holds."""
        return replace(self, arrived=now, visits=0, inflation=inflation)

    def look(self, now: float, turn: int, average: LoadCost) -> History:
        """As policies see it; `average` is the node's, for what was never measured itself."""
        return History(
            arrived=self.arrived,
            attaches=self._attaches(now),
            recent_attaches=self._recent_attaches(turn),
            visits=self.visits,
            inflation=self.inflation,
            load=self.load or average,
        )

    def _attaches(self, now: float) -> float:
        return decay(self.attaches, now - self.counted_at, HALF_LIFE_SECONDS)

    def _recent_attaches(self, turn: int) -> float:
        return decay(self.recent_attaches, turn - self.counted_turn, HALF_LIFE_ATTACHES)


def decay(count: float, passed: float, half_life: float) -> float:
    """What is left of a count once so much has passed."""
    return float(count * 0.5 ** (max(0.0, passed) / half_life))
