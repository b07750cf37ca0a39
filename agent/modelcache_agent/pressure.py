"""Watches the file system's use from turn to turn, and tells when pressure begins and ends."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from modelcache_agent.decide.watermarks import Pressure, Space, Watermarks, judge_pressure
from modelcache_agent.ports.metrics import Metrics
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_api.decisions import DecisionKind

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PressureWatch:
    """`now` is what the last look found; None while there is no pressure."""

    marks: Watermarks
    store: DiskStore
    thread: StoreThread
    metrics: Metrics
    now: Pressure | None = None

    async def look(self, space: Space) -> Pressure | None:
        """The pressure by what was just seen; where it begins or ends, that is written down."""
        before = self.now
        self.now = judge_pressure(space, self.marks, was_pressed=before is not None)
        self.metrics.note_pressure(is_pressed=self.now is not None)
        if self.now is not None and before is None:
            _log.warning("disk pressure: %s", self.now.message)
            await self._note(DecisionKind.PRESSURE_BEGAN, self.now.message)
        if self.now is None and before is not None:
            _log.info("the disk pressure is over")
            await self._note(DecisionKind.PRESSURE_ENDED, "the low watermark is reached")
        return self.now

    async def _note(self, kind: DecisionKind, cause: str) -> None:
        await self.thread.call(self.store.decisions.note_pressure, kind, cause)
