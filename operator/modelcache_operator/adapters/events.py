"""Tells people: each transition once, repeats folded, never in the way of the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from modelcache_api import names
from modelcache_api.conditions import truncate
from modelcache_kube import Event, EventType, KubeClient, KubeError
from modelcache_operator.adapters.token_bucket import TokenBucket
from modelcache_operator.decide.events import EventNote

_log = logging.getLogger(__name__)

# The same transition of the same object within this time is one Event with a count.
_FOLD_SECONDS: Final = 600.0
# A repeat updates the Event at most this often; others are only counted.
_REPEAT_SECONDS: Final = 60.0
_REMEMBERED: Final = 4096
_BACKLOG: Final = 1000
_POST_SECONDS: Final = 20.0
# People read Events; more than this a second, nobody does.
_PER_SECOND: Final = 10.0
_BURST: Final = 50


@dataclass(slots=True)
class _Told:
    first_at: float
    posted_at: float
    count: int


class KubeEvents:
    """Implements `ports.telling.EventSink`; `run` sends what was published."""

    def __init__(self, kube: KubeClient, *, instance: str, monotonic: Callable[[], float]) -> None:
        self._kube = kube
        self._instance = instance
        self._monotonic = monotonic
        self._told: dict[tuple[str, str, str], _Told] = {}
        self._backlog: asyncio.Queue[Event] = asyncio.Queue(_BACKLOG)
        self._bucket = TokenBucket(_PER_SECOND, _BURST)

    def publish(self, notes: Sequence[EventNote]) -> None:
        """Queue them. A full backlog drops the newest: the status says the same."""
        for note in notes:
            count = self._fold(note)
            if count is None:
                continue
            try:
                self._backlog.put_nowait(self._make_event(note, count))
            except asyncio.QueueFull:
                _log.warning("too many events: dropped %s", note.reason)

    async def run(self) -> None:
        """Send for ever. An Event that cannot be sent is dropped."""
        while True:
            event = await self._backlog.get()
            await self._bucket.take()
            try:
                async with asyncio.timeout(_POST_SECONDS):
                    await self._kube.post_event(event)
            except (KubeError, TimeoutError) as error:
                _log.warning("event %s was not sent: %s", event.reason, error or "time-out")

    def _fold(self, note: EventNote) -> int | None:
        """How often this has been told within the window, or None if it need not be told now."""
        now = self._monotonic()
        key = (note.regarding.uid, note.reason, note.note)
        told = self._told.pop(key, None)
        if told is None or now - told.first_at > _FOLD_SECONDS:
            self._told[key] = _Told(now, now, 1)
            if len(self._told) > _REMEMBERED:
                del self._told[next(iter(self._told))]
            return 1
        self._told[key] = told
        told.count += 1
        if now - told.posted_at < _REPEAT_SECONDS:
            return None
        told.posted_at = now
        return told.count

    def _make_event(self, note: EventNote, count: int) -> Event:
        about = note.regarding
        regarding = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "uid": about.uid,
        }
        if about.namespace is not None:
            regarding["namespace"] = about.namespace
        return Event(
            regarding=regarding,
            type=EventType.WARNING if note.is_warning else EventType.NORMAL,
            reason=note.reason,
            note=truncate(note.note),
            action=note.action,
            controller=names.MANAGER_OPERATOR,
            instance=self._instance,
            count=count,
        )
