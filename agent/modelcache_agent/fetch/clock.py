"""Time and chance as the engine sees them, so that tests can hold both."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading


class Clock(Protocol):
    """All times are seconds."""

    def monotonic(self) -> float:
        """A clock that never steps."""
        ...

    def now(self) -> float:
        """Unix time, for what is compared with the outside."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait for a notification, at most this long; the caller holds the condition."""
        ...


class SystemClock:
    """The machine's clocks and the system's source of chance."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def monotonic(self) -> float:
        """Seconds since some start."""
        return time.monotonic()

    def now(self) -> float:
        """Unix time."""
        return time.time()

    def jitter(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait for a notification or the time-out."""
        condition.wait(seconds)
