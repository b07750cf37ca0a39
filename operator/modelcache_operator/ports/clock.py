"""Time, as a parameter."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for people and objects, one for durations."""

    def now(self) -> datetime:
        """The wall clock in UTC, in whole seconds, as the API spells times."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
