"""Where transitions are told and work is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from modelcache_operator.decide.events import EventNote


class EventSink(Protocol):
    """Events for people."""

    def publish(self, notes: Sequence[EventNote]) -> None:
        """Send them when there is time. Never blocks, never fails; repeats are folded."""


class QueueObserver(Protocol):
    """What work queues tell of themselves. Called often: must be cheap."""

    def finished(self, kind: str, result: str, seconds: float) -> None:
        """One run for a key of that kind has ended with `success`, `retry` or `bug`."""
