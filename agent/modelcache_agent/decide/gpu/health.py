"""Whether a card can be used, and when to look again if not. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from modelcache_agent.decide.pauses import Pause, lengthen
from modelcache_api.names import Reason

# A driver is mended by people or by a reboot: asking more often only fills logs.
_FIRST_SECONDS: Final = 30.0
_LONGEST_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Health:
    """`message` is the driver's own text, where there is one; `pause` says when to look again."""

    reason: Reason | None = None
    message: str = ""
    pause: Pause = field(default_factory=Pause)

    @property
    def is_available(self) -> bool:
        """True if the card holds what it is said to hold."""
        return self.reason is None

    def is_due(self, now: float) -> bool:
        """True if the card may be tried again (monotonic seconds)."""
        return not self.is_available and self.pause.is_over(now)


NOT_LOOKED_YET: Final = Health(Reason.GPU_UNAVAILABLE, "the card was not looked at yet")
AVAILABLE: Final = Health()


def after_failure(before: Health, message: str, *, now: float, jitter: float) -> Health:
    """The card cannot be used for what `message` says; the next look is later each time."""
    pause = lengthen(
        before.pause,
        now=now,
        jitter=jitter,
        retry_after=None,
        first_seconds=_FIRST_SECONDS,
        longest_seconds=_LONGEST_SECONDS,
    )
    return Health(Reason.GPU_UNAVAILABLE, message, pause)
