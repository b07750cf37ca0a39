"""Token buckets, one for each caller."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable


class RateLimiter:
    """At most `burst` at once and `per_second` over time, for each key.

    The least recently seen key is forgotten beyond `max_keys`: use keys that callers cannot invent.
    """

    def __init__(
        self,
        per_second: float,
        burst: float,
        *,
        clock: Callable[[], float],
        max_keys: int = 10_000,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._max_keys = max_keys
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def delay(self, key: Hashable) -> float:
        """0.0 and one token taken; or the seconds until there is one, and none taken."""
        now = self._clock()
        level, seen = self._buckets.get(key, (self._burst, now))
        level = min(self._burst, level + (now - seen) * self._per_second)
        wait = 0.0 if level >= 1.0 else (1.0 - level) / self._per_second
        self._buckets[key] = (level if wait else level - 1.0, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return wait
