"""How long ago the times in statuses are: monotonic within one leader, and never in the future."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.ports.clock import Clock

_log = logging.getLogger(__name__)
# Statuses tell whole seconds: what we have just written may seem to be a moment ahead.
_TOLERATED_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Sight:
    stamp: datetime
    age: float
    seen_at: float


@dataclass(slots=True)
class StoredTimes:
    """The wall clock is asked once for each time that is seen for the first time.

    A new leader has nothing else; from then on a step of the clock changes no age.
    """

    clock: Clock
    _sights: dict[tuple[ObjectKey, str], _Sight] = field(default_factory=dict)

    def age(self, cache: ObjectKey, what: str, stamp: datetime | None) -> float:
        """Seconds since then; a time in the future is taken for now."""
        return 0.0 if stamp is None else self._look(cache, what, stamp, least=0.0)

    def remaining(self, cache: ObjectKey, what: str, until: datetime, at_most: float) -> float:
        """Seconds until then; at most as many as could be left."""
        return min(at_most, -self._look(cache, what, until, least=-at_most))

    def forget(self, cache: ObjectKey) -> None:
        """The ModelCache is gone."""
        for key in [key for key in self._sights if key[0] == cache]:
            del self._sights[key]

    def _look(self, cache: ObjectKey, what: str, stamp: datetime, least: float) -> float:
        now, known = self.clock.monotonic(), self._sights.get((cache, what))
        if known is None or known.stamp != stamp:
            age = (self.clock.now() - stamp).total_seconds()
            if age < least - _TOLERATED_SECONDS:
                _log.warning("%s: %s is too far in the future: compare clocks", cache, what)
            known = self._sights[cache, what] = _Sight(stamp, max(least, age), now)
        return known.age + now - known.seen_at
