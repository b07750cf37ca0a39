"""Leave to read limited sources, and how fast: the fleet's limits as one node keeps to them.

A version without a permit is not limited. One whose lease has run out is not read, and no request
is opened for it. Bytes from other nodes never pass here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.fetch.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.fetch.clock import Clock

# How often a stream whose lease has run out looks whether its job was stopped.
_POLL_SECONDS: Final = 0.2


@dataclass(slots=True)
class _Permit:
    until: float = float("-inf")
    throttle: Throttle | None = None
    is_wanted: bool = False


class SourceGate:
    """Thread-safe. `monotonic` must go on while the machine is suspended: leases do."""

    def __init__(self, clock: Clock, monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._permits: dict[str, _Permit] = {}

    def now(self) -> float:
        """The clock that leases are measured by."""
        return self._monotonic()

    def close(self, uid: str) -> None:
        """The version is limited, and there is no leave to read it now."""
        with self._changed:
            self._permits[uid] = _Permit()

    def open(self, uid: str, until: float, bytes_per_second: int | None) -> None:
        """It may be read until then, at most this fast; None: as fast as it goes."""
        with self._changed:
            permit = self._permits.setdefault(uid, _Permit())
            permit.until, permit.is_wanted = until, False
            if bytes_per_second is None:
                permit.throttle = None
            elif permit.throttle is None:
                permit.throttle = Throttle(Bandwidth(bytes_per_second), self._clock)
            else:
                permit.throttle.set_cap(Bandwidth(bytes_per_second))
            self._changed.notify_all()

    def forget(self, uid: str) -> None:
        """The version is not limited any more, or not fetched."""
        with self._changed:
            self._permits.pop(uid, None)
            self._changed.notify_all()

    def is_wanted(self, uid: str) -> bool:
        """True if somebody would have read the source and could not."""
        with self._changed:
            permit = self._permits.get(uid)
            return permit is not None and permit.is_wanted

    def may_read(self, uid: str) -> bool:
        """True if a request to the source may be opened now. If not, that it is wanted is noted."""
        with self._changed:
            permit = self._permits.get(uid)
            if permit is None or permit.until > self._monotonic():
                return True
            permit.is_wanted = True
            return False

    def take(self, uid: str, wanted: int, is_stopped: Callable[[], bool]) -> int:
        """Wait for leave; how many bytes may be read now. 0 only if `is_stopped` says so."""
        while not is_stopped():
            with self._changed:
                permit = self._permits.get(uid)
                if permit is None:
                    return wanted
                if permit.until <= self._monotonic():
                    self._clock.wait(self._changed, _POLL_SECONDS)
                    continue
                until, throttle = permit.until, permit.throttle
            if throttle is None:
                return wanted
            is_over = self._make_end(until, is_stopped)
            if amount := throttle.take(wanted, is_over):
                return amount
        return 0

    def wake(self) -> None:
        """Let everybody who waits look whether his job was stopped."""
        with self._changed:
            self._changed.notify_all()
            throttles = [permit.throttle for permit in self._permits.values()]
        for throttle in throttles:
            if throttle is not None:
                throttle.wake()

    def _make_end(self, until: float, is_stopped: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: is_stopped() or until <= self._monotonic()
