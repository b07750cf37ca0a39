"""What runs beside the loop: transfers, proposals, hashing. Each wakes the loop when it ends."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Final

from modelcache_agent.background import BackgroundTasks
from modelcache_agent.decide.actions import Action, Scrub, Verify
from modelcache_agent.decide.payers import find_payer
from modelcache_agent.decide.setbacks import make_setback
from modelcache_agent.decide.world import Flight
from modelcache_agent.fetch import FetchCancelledError, Progress
from modelcache_agent.memory import Memory, RunningFetch
from modelcache_agent.ports.clock import Clock
from modelcache_agent.ports.metrics import Metrics
from modelcache_agent.scrubbing import Scrubber
from modelcache_agent.tiers.errors import StoreError, describe_error
from modelcache_agent.tiers.rehash import hash_version, settle
from modelcache_agent.transfers import Listeners, TransferFailedError, Transfers
from modelcache_agent.wakeup import Wakeup
from modelcache_api.log_fields import about
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import EntryState, Reason
from modelcache_api.v1alpha1.cache_node import EntrySpec

_log = logging.getLogger(__name__)
_CANCEL_SECONDS: Final = 4.0
_BUG_SECONDS: Final = 60.0
_TENTHS: Final = 10


class Errands:
    """At most one errand for each uid or digest."""

    def __init__(
        self,
        *,
        memory: Memory,
        transfers: Transfers,
        scrubber: Scrubber,
        tasks: BackgroundTasks,
        wakeup: Wakeup,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._memory = memory
        self._transfers = transfers
        self._scrubber = scrubber
        self._tasks = tasks
        self._wakeup = wakeup
        self._clock = clock
        self._metrics = metrics
        self._stopping = threading.Event()

    async def stop(self) -> None:
        """End transfers and hashing where they are; everything can be taken up again."""
        self._stopping.set()
        await asyncio.gather(*(self.cancel(uid) for uid in tuple(self._memory.fetches)))

    def start_fetch(
        self, entry: EntrySpec, promised_bytes: int, *, through_memory: bool = False
    ) -> None:
        """Reserve the bytes and fetch the entry, unless that goes on already."""
        if entry.uid in self._memory.fetches or self._stopping.is_set():
            return
        flight = Flight(entry.uid, entry.source_digest, entry.size_bytes)
        running = RunningFetch(entry, flight, promised_bytes, through_memory)
        self._memory.fetches[entry.uid] = running
        running.task = self._tasks.start(f"fetch-{entry.uid}", self._fetch(running))

    async def cancel(self, uid: str) -> None:
        """Stop a transfer and return when nothing writes its files any more."""
        running = self._memory.fetches.get(uid)
        if running is None or running.task is None:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._transfers.engine.cancel(uid), _CANCEL_SECONDS)
        running.task.cancel()
        await asyncio.wait({running.task}, timeout=_CANCEL_SECONDS)
        self._wakeup.set()

    async def pause(self, uid: str) -> None:
        """Stop a transfer until its next turn, unless all its bytes came while this was decided."""
        running = self._memory.fetches.get(uid)
        if running is None or running.flight.state is not EntryState.DOWNLOADING:
            return
        await self.cancel(uid)
        _log.info("paused uid=%s", uid)

    async def drop_partial(self, uid: str) -> None:
        """Delete unfinished files and what the engine remembers of them."""
        if uid in self._memory.fetches:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._transfers.engine.forget(uid), _CANCEL_SECONDS)
        await self._transfers.thread.call(self._transfers.store.drop_partial, uid)
        self._wakeup.set()

    def start_propose(self, entry: EntrySpec, digest: ContentDigest) -> None:
        """Ask the operator to adopt the digest."""

        def work() -> Coroutine[None, None, None]:
            return self._guard(entry, self._transfers.propose(entry, digest))

        self._start_once(entry.uid, f"propose-{entry.uid}", work)

    def start_verify(self, digest: ContentDigest) -> None:
        """Hash a content again; it is verified or withdrawn afterwards."""
        self._start_once(digest, f"verify-{digest}", lambda: self._verify(digest))

    def start_scrub(self, action: Scrub) -> None:
        """Read published files again, unless some are being read."""
        self._start_once("scrub", "scrub", lambda: self._scrub(action))

    def _start_once(
        self, key: str, name: str, work: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        if key in self._memory.busy:
            return
        self._memory.busy.add(key)
        task = self._tasks.start(name, work())
        task.add_done_callback(lambda _task: self._finish(key))

    def _finish(self, key: str) -> None:
        self._memory.busy.discard(key)
        self._wakeup.set()

    async def _fetch(self, running: RunningFetch) -> None:
        """One transfer; its reservation ends with it, however it ends."""
        entry = running.entry

        def on_progress(progress: Progress) -> None:
            here = max(0, entry.size_bytes - progress.total_bytes)
            before = running.flight
            running.flight = replace(before, verified_bytes=here + progress.verified_bytes)
            if _tenth(before) != _tenth(running.flight):
                self._wakeup.set()

        def on_fetched() -> None:
            running.flight = replace(
                running.flight, verified_bytes=entry.size_bytes, state=EntryState.VERIFYING
            )

        def on_state(state: EntryState, queued: str) -> None:
            before = running.flight
            running.flight = replace(before, state=state, queued=queued)
            if running.flight != before:
                self._wakeup.set()

        listeners = Listeners(on_progress, on_state, on_fetched, running.news)
        node = self._memory.cache_node
        namespace = find_payer(entry.uid, node.spec.caches if node is not None else ())
        try:
            work = self._transfers.fetch(
                entry, namespace, listeners, through_memory=running.through_memory
            )
            with about(uid=entry.uid, model=entry.name or "", trace=secrets.token_hex(16)):
                _log.info("fetching uid=%s bytes=%d", entry.uid, running.promised_bytes)
                await self._guard(entry, work)
        finally:
            self._memory.fetches.pop(entry.uid, None)
            self._wakeup.set()

    async def _guard(self, entry: EntrySpec, work: Coroutine[None, None, None]) -> None:
        """A failure becomes the entry's setback; a bug too, so that it is not tried in a circle."""
        try:
            await work
        except TransferFailedError as error:
            self._note_failure(entry, error)
        except FetchCancelledError:
            return
        except Exception as error:  # noqa: BLE001 - it costs this entry its turn, not the process
            _log.exception("uid=%s: a bug or a broken disk", entry.uid)
            message = f"the agent failed with {type(error).__name__}: see its log"
            self._note_failure(
                entry, TransferFailedError(Reason.STORE_ERROR, message, _BUG_SECONDS)
            )
        else:
            self._memory.setbacks.pop(entry.uid, None)

    def _note_failure(self, entry: EntrySpec, error: TransferFailedError) -> None:
        setback = make_setback(
            entry,
            self._memory.setbacks.get(entry.uid),
            error.reason,
            error.message,
            retry_after=error.retry_after,
            now=self._clock.monotonic(),
            jitter=self._clock.jitter(),
        )
        self._memory.setbacks[entry.uid] = setback
        self._metrics.count_failure(error.reason)
        pause = setback.retry_at - self._clock.monotonic()
        _log.warning(
            "uid=%s reason=%s retry_in=%.0fs: %s", entry.uid, error.reason, pause, error.message
        )

    async def _verify(self, digest: ContentDigest) -> None:
        store, thread = self._transfers.store, self._transfers.thread
        stored = await thread.call(store.catalog.get, digest)
        if stored is None:
            return
        try:
            hashed = await asyncio.to_thread(hash_version, store, stored, self._stopping.is_set)
            if hashed is not None and await thread.call(settle, store, hashed) is False:
                self._metrics.count_failure(Reason.DIGEST_MISMATCH)
        except Exception as error:  # noqa: BLE001 - told, and not tried in a circle
            self.note_fault(Verify(digest), error)
        else:
            self._memory.faults.pop(Verify(digest), None)

    async def _scrub(self, action: Scrub) -> None:
        try:
            await self._scrubber.scrub(action.blobs, self._must_yield, self._stopping.is_set)
        except Exception as error:  # noqa: BLE001 - told, and not tried in a circle
            self.note_fault(action, error)
        else:
            self._memory.faults.pop(action, None)

    def _must_yield(self) -> bool:
        """Transfers need the disk more. Also asked by the thread that reads."""
        fetches = tuple(self._memory.fetches.values())
        is_busy = any(fetch.flight.state is not EntryState.PENDING for fetch in fetches)
        return is_busy or self._stopping.is_set()

    def note_fault(self, action: Action, error: Exception) -> None:
        """The disk, or a bug, refused an action: it rests, and its entry tells why."""
        if not isinstance(error, (OSError, StoreError)):
            _log.exception("%s: a bug", action, exc_info=error)
        message = f"the disk failed: {describe_error(error)}"
        now, jitter = self._clock.monotonic(), self._clock.jitter()
        self._memory.note_fault(action, message, now=now, jitter=jitter)
        self._metrics.count_failure(Reason.STORE_ERROR)
        _log.warning("%s failed and rests: %s", action, describe_error(error))


def _tenth(flight: Flight) -> int:
    return _TENTHS * flight.verified_bytes // max(1, flight.total_bytes)
