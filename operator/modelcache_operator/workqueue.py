"""A queue of things to look at: each at most once, by one worker at a time, failures later."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from modelcache_api.log_fields import about
from modelcache_kube import ApiUnavailable, KubeError
from modelcache_operator.keys import Key
from modelcache_operator.ports.telling import QueueObserver

_log = logging.getLogger(__name__)

# A step awaits the API server and the source, which have deadlines of their own; this one catches
# what has none.
_STEP_SECONDS: Final = 600.0
# Who lets others go first does so for no longer than this. A leader that decides for a thousand
# nodes and 200 ModelCaches at once takes about as long, and writes each node once then.
_PATIENCE_SECONDS: Final = 15.0

Handler = Callable[[Key], Awaitable["Requeue"]]


@dataclass(frozen=True, slots=True)
class Requeue:
    """When to look again without being told to. None: only when something changes."""

    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """Delays of a key that keeps failing: doubling, jittered by a fifth to either side."""

    first_seconds: float = 0.5
    longest_seconds: float = 120.0

    def after(self, failures: int, uniform: Callable[[float, float], float]) -> float:
        """Seconds to wait after that many failures in a row."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 30)
        return min(doubled, self.longest_seconds) * uniform(0.8, 1.2)


@dataclass(slots=True)
class _Waiting:
    """Keys by state. A key is in at most one of the lanes and delayed; active ones may be again.

    The lanes are `urgent`, `ready` and `patient`, the last with the time since when. `hurried` are
    those that will be urgent once they are due, `pressing` active ones that were. It is
    `is_patients_turn` after one of the others.
    """

    urgent: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    ready: OrderedDict[Key, None] = field(default_factory=OrderedDict)
    patient: OrderedDict[Key, float] = field(default_factory=OrderedDict)
    hurried: set[Key] = field(default_factory=set)
    pressing: set[Key] = field(default_factory=set)
    is_patients_turn: bool = True
    delayed: dict[Key, asyncio.TimerHandle] = field(default_factory=dict)
    active: set[Key] = field(default_factory=set)
    dirty: set[Key] = field(default_factory=set)
    failures: dict[Key, int] = field(default_factory=dict)

    def __contains__(self, key: Key) -> bool:
        """True if the key waits in a lane."""
        return key in self.urgent or key in self.ready or key in self.patient

    def __len__(self) -> int:
        return len(self.urgent) + len(self.ready) + len(self.patient)

    def take(self, now: float, patience_seconds: float) -> Key:
        """The next key of those in the lanes, of which there is one.

        Patient ones that have waited that long take turns with the others: a thousand of them
        would keep those waiting for as long as new ones come.
        """
        if self.urgent:
            key = self.urgent.popitem(last=False)[0]
            self.pressing.add(key)
            return key
        since = next(iter(self.patient.values()), now)
        is_due = bool(self.patient) and now - since >= patience_seconds
        if not self.ready or (is_due and self.is_patients_turn):
            self.is_patients_turn = False
            return self.patient.popitem(last=False)[0]
        self.is_patients_turn = True
        return self.ready.popitem(last=False)[0]


class WorkQueue:
    """Coalesces by key. All methods belong to the event loop that runs it.

    Keys that are `is_patient` let the others go first, for a while: what many decisions come to is
    then written once. Time is the loop's own, so that tests bring theirs.
    """

    def __init__(
        self,
        observer: QueueObserver,
        *,
        uniform: Callable[[float, float], float],
        delays: RetryDelays | None = None,
        is_patient: Callable[[Key], bool] = lambda _key: False,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._observer = observer
        self._uniform = uniform
        self._delays = delays or RetryDelays()
        self._is_patient = is_patient
        self._patience_seconds = patience_seconds
        self._waiting = _Waiting()
        self._wake = asyncio.Event()

    def add(self, key: Key, *, after_seconds: float = 0.0, is_urgent: bool = False) -> None:
        """Look at the key, at the latest after that time. Earlier requests stay in force.

        What `is_urgent` goes before all others once it is due.
        """
        if is_urgent:
            self._waiting.hurried.add(key)
        if after_seconds <= 0 or (is_urgent and key in self._waiting):
            self._make_ready(key)
        elif key not in self._waiting:
            self._delay(key, after_seconds)

    @property
    def depth(self) -> int:
        """Keys that are ready or being worked on."""
        return len(self._waiting) + len(self._waiting.active)

    async def run(self, handler: Handler, workers: int) -> None:
        """Work for ever. On cancellation the workers stop where they are, and all is forgotten."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(workers):
                    group.create_task(self._work(handler), name=f"worker-{number}")
        finally:
            self.clear()

    def clear(self) -> None:
        """Forget everything."""
        for timer in self._waiting.delayed.values():
            timer.cancel()
        self._waiting = _Waiting()
        self._wake.clear()

    def _make_ready(self, key: Key) -> None:
        waiting = self._waiting
        if (timer := waiting.delayed.pop(key, None)) is not None:
            timer.cancel()
        if key in waiting.active:
            waiting.dirty.add(key)
            return
        if key in waiting.hurried:
            waiting.hurried.discard(key)
            waiting.ready.pop(key, None)
            waiting.patient.pop(key, None)
            waiting.urgent[key] = None
        elif key in waiting:
            return
        elif self._is_patient(key):
            waiting.patient[key] = asyncio.get_running_loop().time()
        else:
            waiting.ready[key] = None
        self._wake.set()

    def _delay(self, key: Key, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        planned = self._waiting.delayed.get(key)
        if planned is not None:
            if planned.when() <= due:
                return
            planned.cancel()
        self._waiting.delayed[key] = loop.call_at(due, self._make_ready, key)

    async def _work(self, handler: Handler) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            waiting = self._waiting
            key = waiting.take(asyncio.get_running_loop().time(), self._patience_seconds)
            waiting.active.add(key)
            try:
                with about(object=str(key), trace=f"{random.getrandbits(128):032x}"):
                    await self._step(handler, key)
            finally:
                waiting.active.discard(key)
                waiting.pressing.discard(key)
                if key in waiting.dirty:
                    waiting.dirty.discard(key)
                    self._make_ready(key)
            # A step that finds nothing to write never waits: a thousand of them in a row would
            # keep the renewal of the Lease, grants and health checks waiting.
            await asyncio.sleep(0)

    async def _step(self, handler: Handler, key: Key) -> None:
        """One run. Nothing that it raises ends the worker; the key is tried again later."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(_STEP_SECONDS):
                requeue = await handler(key)
        except (KubeError, TimeoutError) as error:
            result, delay = "retry", self._count_failure(key)
            if isinstance(error, ApiUnavailable) and error.retry_after is not None:
                delay = max(delay, error.retry_after)
            _log.warning("%s: %s; again in %.1f s", key, error or "took too long", delay)
            self.add(key, after_seconds=delay, is_urgent=key in self._waiting.pressing)
        except Exception:  # noqa: BLE001 - a bug costs one key, never the process
            result, delay = "bug", self._count_failure(key)
            _log.exception("%s: a bug; again in %.1f s", key, delay)
            self.add(key, after_seconds=delay)
        else:
            result = "success"
            self._waiting.failures.pop(key, None)
            if requeue.after_seconds is not None:
                self.add(key, after_seconds=max(requeue.after_seconds, 0.001))
        self._observer.finished(key.kind, result, loop.time() - started)

    def _count_failure(self, key: Key) -> float:
        failures = self._waiting.failures.get(key, 0) + 1
        self._waiting.failures[key] = failures
        return self._delays.after(failures, self._uniform)
