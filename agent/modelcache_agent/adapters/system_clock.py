"""Time and chance of the machine."""

from __future__ import annotations

import random
import time


class SystemClock:
    """The port over the operating system."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def monotonic(self) -> float:
        """Seconds that never go back, and go on while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def jitter(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()
