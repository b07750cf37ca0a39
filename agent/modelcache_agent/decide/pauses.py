"""How long a channel rests after failures in a row. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MOST_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True)
class Pause:
    """Failures in a row of one kind of request, and when the next may be sent (monotonic)."""

    failures: int = 0
    until: float = 0.0

    def is_over(self, now: float) -> bool:
        """True if the next request may be sent."""
        return now >= self.until


def lengthen(
    pause: Pause,
    *,
    now: float,
    jitter: float,
    retry_after: float | None,
    first_seconds: float = 1.0,
    longest_seconds: float = 60.0,
) -> Pause:
    """The pause after one more failure: doubled, jittered by half, at least `retry_after`."""
    doublings = min(pause.failures, _MOST_DOUBLINGS)
    seconds = min(longest_seconds, first_seconds * 2.0**doublings) * (0.5 + 0.5 * jitter)
    return Pause(pause.failures + 1, now + max(seconds, retry_after or 0.0))
