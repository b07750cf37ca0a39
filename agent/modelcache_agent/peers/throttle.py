"""A bound on bytes per second, shared by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Throttle:
    """Each call says when its bytes may go. Without a rate, at once."""

    def __init__(
        self,
        bytes_per_second: int | None,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._rate = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait_for(self, count: int) -> None:
        """Return when so many more bytes are within the bound."""
        if self._rate is None:
            return
        with self._lock:
            now = self._monotonic()
            starts = max(now, self._free_at)
            self._free_at = starts + count / self._rate
        if starts > now:
            self._sleep(starts - now)
