"""One cap on bandwidth, shared by all streams: first come, first served, a small turn at a time.

Streams are shared fairly between jobs, and turns between streams, so each model gets its share of
the cap. A stream that waits sleeps until its tokens are there; nobody polls.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from modelcache_agent.decide.bandwidth import Bandwidth, Bucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.fetch.clock import Clock


class Throttle:
    """Thread-safe."""

    def __init__(self, cap: Bandwidth, clock: Clock) -> None:
        self._cap = cap
        self._clock = clock
        self._lock = threading.Lock()
        self._bucket = Bucket(cap, 0.0, clock.monotonic())
        self._queue: deque[threading.Condition] = deque()

    def take(self, wanted: int, is_stopped: Callable[[], bool]) -> int:
        """Wait for a turn; how many bytes may be read now. 0 only if `is_stopped` says so."""
        place = threading.Condition(self._lock)
        with self._lock:
            self._queue.append(place)
            try:
                while not is_stopped():
                    now = self._clock.monotonic()
                    amount = min(wanted, self._cap.turn_bytes)
                    is_first = self._queue[0] is place
                    pause = self._bucket.pause_before(amount, now) if is_first else None
                    if pause == 0:
                        self._bucket = self._bucket.take(amount, now)
                        return amount
                    self._clock.wait(place, pause)
                return 0
            finally:
                self._queue.remove(place)
                if self._queue:
                    self._queue[0].notify()

    def take_all(self, wanted: int) -> None:
        """Wait until so many bytes may go, turn by turn."""
        while wanted > 0:
            wanted -= self.take(wanted, lambda: False)

    def set_cap(self, cap: Bandwidth) -> None:
        """Another cap from now on; what was saved up stays, within its burst."""
        with self._lock:
            if cap != self._cap:
                self._cap = cap
                self._bucket = self._bucket.under(cap, self._clock.monotonic())
                for place in self._queue:
                    place.notify()

    def wake(self) -> None:
        """Let everybody who waits look whether his job was stopped."""
        with self._lock:
            for place in self._queue:
                place.notify()
