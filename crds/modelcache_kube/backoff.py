"""How long to wait before the next attempt."""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Delays that double from `first` to `longest`, each jittered down by up to a half."""

    def __init__(
        self, first: float, longest: float, uniform: Callable[[float, float], float]
    ) -> None:
        self._first = first
        self._longest = longest
        self._uniform = uniform
        self._next = first

    def next_delay(self, at_least: float | None = None) -> float:
        """Seconds to wait now; never less than a server's Retry-After (capped at `longest`)."""
        delay = self._next * self._uniform(0.5, 1.0)
        self._next = min(self._longest, 2 * self._next)
        return max(delay, min(at_least or 0.0, self._longest))

    def reset(self) -> None:
        """It worked: the next failure starts from `first`."""
        self._next = self._first
