"""Time and chance."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Read by the shell alone; decisions get the values."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1), to spread the nodes of a cluster."""
        ...
