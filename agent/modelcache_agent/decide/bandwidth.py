"""How many bytes may be taken when, under a cap. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

# A turn lasts about this long, so that streams under one cap alternate many times a second.
_TURN_SECONDS: Final = 0.02
# What a link that was idle, or a thread that woke late, may catch up with.
_BURST_SECONDS: Final = 0.1
# Smaller reads cost more CPU than they carry bytes; larger ones would be a piece and more.
_SMALLEST_TURN: Final = 4 * 1024
_LARGEST_TURN: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """A cap: over any time t at most `bytes_per_second * t + burst_bytes` are taken."""

    bytes_per_second: int

    @property
    def turn_bytes(self) -> int:
        """The most that one stream takes before it is the next one's turn."""
        turn = int(self.bytes_per_second * _TURN_SECONDS)
        return min(max(turn, _SMALLEST_TURN), _LARGEST_TURN)

    @property
    def burst_bytes(self) -> int:
        """The most that may be taken at once after a silence; one turn at least."""
        return max(self.turn_bytes, int(self.bytes_per_second * _BURST_SECONDS))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens, one a byte, at the moment `at` (monotonic seconds)."""

    cap: Bandwidth
    tokens: float
    at: float

    def pause_before(self, amount: int, now: float) -> float:
        """Seconds until so many tokens are there; 0 if they are. At most one burst is ever there.

        Whole milliseconds, so that rounding never makes a wait that ends where it began.
        """
        missing = amount - self._at(now)
        if missing <= 0:
            return 0.0
        return math.ceil(missing / self.cap.bytes_per_second * 1000) / 1000

    def take(self, amount: int, now: float) -> Bucket:
        """The bucket after this many tokens were taken out of it; the caller has waited for them.

        They are not given back: what a stream took and did not read is lost, never read twice.
        """
        return replace(self, tokens=self._at(now) - amount, at=max(now, self.at))

    def under(self, cap: Bandwidth, now: float) -> Bucket:
        """The bucket under another cap from this moment on."""
        tokens = min(self._at(now), float(cap.burst_bytes))
        return Bucket(cap, tokens, max(now, self.at))

    def _at(self, now: float) -> float:
        grown = self.tokens + max(0.0, now - self.at) * self.cap.bytes_per_second
        return min(grown, float(self.cap.burst_bytes))
