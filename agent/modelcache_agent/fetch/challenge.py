"""Asks a source for parts of files that are here, to see whether it has the bytes it claims.

The answers are compared with the bytes on this node and dropped; nothing is written. Requests go
the way of all others: the same grants, connections, checks of addresses, caps and counters.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.possession import choose_spans
from modelcache_agent.decide.transfer_plan import backoff_seconds
from modelcache_agent.fetch.connection import ConnectionCache
from modelcache_agent.fetch.job import FetchCancelledError
from modelcache_agent.fetch.job_state import JobState
from modelcache_agent.fetch.parked_jobs import make_file_state
from modelcache_agent.fetch.part_reader import PartReader, RangesIgnoredError
from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_agent.fetch.scheduler import StoppedError
from modelcache_agent.fetch.verdict import Ask
from modelcache_api.quoted import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from modelcache_agent.decide.possession import Span
    from modelcache_agent.fetch.clock import Clock
    from modelcache_agent.fetch.config import FetchConfig
    from modelcache_agent.fetch.counters import CounterBoard
    from modelcache_agent.fetch.file_state import FileState
    from modelcache_agent.fetch.grants import GrantDesk
    from modelcache_agent.fetch.job import FetchJob
    from modelcache_agent.fetch.source_gate import SourceGate
    from modelcache_agent.fetch.watch import StreamWatch

_log = logging.getLogger(__name__)
# How often a pause looks whether its job was stopped.
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Means:
    """What the engine's requests go through."""

    config: FetchConfig
    desk: GrantDesk
    gate: SourceGate | None
    clock: Clock
    counters: CounterBoard
    interrupt: Callable[[JobState], None]
    """Wakes whoever waits for the network for this job."""

    draw: Callable[[int], int]
    """`draw(n)` is uniform in [0, n), and nobody can foresee it."""


class Challenges:
    """One at a time for each of the watches. To be made and used on the event loop."""

    def __init__(
        self, means: Means, watches: Sequence[StreamWatch], slots: asyncio.Semaphore
    ) -> None:
        self._means = means
        self._idle = list(watches)
        self._slots = slots
        self._running: dict[str, JobState] = {}
        self._threads = ThreadPoolExecutor(len(watches), thread_name_prefix="fetch-challenge")

    async def run(self, job: FetchJob, blobs: Mapping[str, Path]) -> frozenset[str]:
        """Paths of the job's files of which the source has shown every part that was asked for.

        `blobs` holds the bytes that are here, by path. After the first file that was not shown no
        more is asked.

        Raises:
            FetchCancelledError: `stop` was called.
        """
        state = JobState(job, [make_file_state(job, file) for file in job.files])
        self._running[job.uid] = state
        shown: frozenset[str] = frozenset()
        try:
            async with self._slots:
                if not state.is_stopped:
                    shown = await self._ask(state, blobs)
        except StoppedError:
            state.stop(None)
        finally:
            del self._running[job.uid]
        if state.is_stopped:  # perhaps after the last answer: whoever stopped it says so only once
            raise FetchCancelledError(job.uid)
        return shown

    async def _ask(self, state: JobState, blobs: Mapping[str, Path]) -> frozenset[str]:
        watch = self._idle.pop()
        questioner = _Questioner(self._means, watch, state, blobs)
        asked = asyncio.get_running_loop().run_in_executor(self._threads, questioner.ask_all)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            self.stop(state.spec.uid)
            await asyncio.wait({asked})
            raise
        finally:
            self._idle.append(watch)

    def stop(self, uid: str) -> None:
        """Ask no more about this job; no-op if nothing is asked."""
        state = self._running.get(uid)
        if state is not None:
            state.stop(None)
            self._means.interrupt(state)

    async def close(self) -> None:
        """End all questions and join the threads."""
        for uid in tuple(self._running):
            self.stop(uid)
        await asyncio.to_thread(self._threads.shutdown)


class _Questioner:
    """Asks about the files of one job, one after another, on connections of its own. Blocks."""

    def __init__(
        self, means: Means, watch: StreamWatch, job: JobState, blobs: Mapping[str, Path]
    ) -> None:
        self._means = means
        self._watch = watch
        self._job = job
        self._blobs = blobs
        self._pause = threading.Condition()
        self._cache = ConnectionCache(
            means.config, watch.set_socket, lambda: means.counters.add("connections")
        )

    def ask_all(self) -> frozenset[str]:
        """Raises StoppedError."""
        shown = set()
        self._watch.begin(self._job)
        try:
            for file in self._job.files:
                if not self._has_all(file):
                    break
                shown.add(file.path)
        finally:
            self._watch.end()
            self._cache.close()
        return frozenset(shown)

    def _has_all(self, file: FileState) -> bool:
        spans = choose_spans(file.size_bytes, self._means.draw)
        try:
            fault = next(filter(None, (self._find_fault(file, span) for span in spans)), None)
        except OSError as error:
            fault = f"what is here cannot be read: {error.strerror}"
        if fault is not None:
            uid, name = self._job.spec.uid, quote(file.path)
            _log.warning("uid=%s %s is here, but is fetched in whole: %s", uid, name, fault)
        return fault is None

    def _find_fault(self, file: FileState, span: Span) -> str | None:
        """Why the source has not shown that it has these bytes, or None."""
        ours = _read_blob(self._blobs[file.path], span, file.size_bytes)
        if ours is None:
            return "it has changed"
        while True:
            try:
                theirs = self._read(file, span)
            except RangesIgnoredError:
                return "the source sends no parts of files"
            except RefusalError as error:
                if not self._may_try_again(file, error.refusal):
                    return error.refusal.message
            else:
                return None if theirs == ours else "the source has other bytes"

    def _read(self, file: FileState, span: Span) -> bytes:
        means, job = self._means, self._job
        grant = means.desk.get(job, file)
        self._await_leave()
        reader = PartReader(self._cache, self._watch, means.clock, means.counters)
        source = file.spec.source
        try:
            ask = Ask(
                file.path,
                file.size_bytes,
                source.etag,
                span.start,
                span.end,
                source.last_modified,
            )
            end = reader.open(job, grant, ask)
            theirs = bytearray()
            reader.read(memoryview(bytearray(end - span.start)), span.start, theirs.extend)
            reader.expect_end()
            return bytes(theirs)
        finally:
            reader.close()

    def _await_leave(self) -> None:
        gate, uid = self._means.gate, self._job.spec.uid
        if gate is not None and not gate.may_read(uid):
            gate.take(uid, 1, lambda: self._job.is_stopped)
        if self._job.is_stopped:
            raise StoppedError

    def _may_try_again(self, file: FileState, refusal: Refusal) -> bool:
        """As for a fetch: within the budget of a file, after a pause, or with a new grant."""
        config, clock = self._means.config, self._means.clock
        file.failures += 1
        if refusal.cure is Cure.NONE or file.failures >= config.file_attempts:
            return False
        self._means.counters.add_retry(refusal.reason)
        if refusal.cure is Cure.REFRESH:
            if file.grant_was_refreshed:
                return False
            file.grant_was_refreshed, file.grant = True, None
            return True
        pause = backoff_seconds(file.failures - 1, clock.jitter(), config.backoff)
        self._sleep(pause + refusal.least_pause_seconds)
        return True

    def _sleep(self, seconds: float) -> None:
        clock = self._means.clock
        end = clock.monotonic() + seconds
        with self._pause:
            while (left := end - clock.monotonic()) > 0:
                if self._job.is_stopped:
                    raise StoppedError
                clock.wait(self._pause, min(left, _POLL_SECONDS))


def _read_blob(blob: Path, span: Span, size_bytes: int) -> bytes | None:
    """The bytes of the span; None if the file has another size by now. Raises OSError."""
    fd = os.open(blob, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_size != size_bytes:
            return None
        return os.pread(fd, span.end - span.start, span.start)
    finally:
        os.close(fd)
