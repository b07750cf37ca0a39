"""The engine's face on the event loop: single flight, bounded jobs, cancellation, progress."""

from __future__ import annotations

import asyncio
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from modelcache_agent.fetch.challenge import Challenges, Means
from modelcache_agent.fetch.clock import Clock, SystemClock
from modelcache_agent.fetch.config import FetchConfig
from modelcache_agent.fetch.counters import CounterBoard, FetchCounters
from modelcache_agent.fetch.finder import RouteFinder
from modelcache_agent.fetch.grants import GrantDesk
from modelcache_agent.fetch.job import FetchCancelledError, FetchOutcome, Progress
from modelcache_agent.fetch.job_state import JobState
from modelcache_agent.fetch.parked_jobs import ParkedJobs
from modelcache_agent.fetch.scheduler import Scheduler
from modelcache_agent.fetch.stream import Stream
from modelcache_agent.fetch.throttle import Throttle
from modelcache_agent.fetch.watch import StreamWatch, watch_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from modelcache_agent.decide.measures import LoadSource
    from modelcache_agent.fetch.job import FetchJob, GrantProvider
    from modelcache_agent.fetch.routes import Routes
    from modelcache_agent.fetch.source_gate import SourceGate

    OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class _Flight:
    """One job in the air, with everybody who waits for it."""

    task: asyncio.Task[FetchOutcome]
    waiters: int = 0
    listeners: list[OnProgress] = field(default_factory=list)
    state: JobState | None = None


class FetchEngine:
    """Fetches jobs. Make it, `async with` it, and call `fetch` from one event loop.

    Entering starts the stream threads; leaving interrupts all jobs and joins the threads. What is
    on disk then can be resumed.
    """

    def __init__(
        self,
        grants: GrantProvider,
        config: FetchConfig | None = None,
        clock: Clock | None = None,
        routes: Routes | None = None,
        gate: SourceGate | None = None,
        draw: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._draw = draw
        self._routes = routes
        self._gate = gate
        self._grants = grants
        self._config = config or FetchConfig()
        self._clock = clock or SystemClock()
        self._board = CounterBoard()
        self._scheduler = Scheduler(self._config, self._clock, self._board, self._interrupt)
        cap = self._config.bandwidth
        self._throttle = None if cap is None else Throttle(cap, self._clock)
        self._watches = [
            StreamWatch(self._clock, self._throttle, gate)
            for _ in range(self._config.streams + self._config.max_jobs)
        ]
        self._flights: dict[str, _Flight] = {}
        self._parked = ParkedJobs()
        self._slots = asyncio.Semaphore(self._config.max_jobs)
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    async def __aenter__(self) -> Self:
        """Start the threads."""
        desk = GrantDesk(
            self._grants, asyncio.get_running_loop(), self._config, self._clock, self._board
        )
        finder = RouteFinder(desk, self._routes, self._gate)
        means = Means(
            self._config,
            desk,
            self._gate,
            self._clock,
            self._board,
            self._interrupt,
            self._draw,
        )
        streams = self._config.streams
        self._challenges = Challenges(means, self._watches[streams:], self._slots)
        for number, watch in enumerate(self._watches[:streams]):
            stream = Stream(
                self._config,
                self._scheduler,
                desk,
                watch,
                self._clock,
                self._board,
                finder,
            )
            self._start(f"fetch-stream-{number}", stream.run)
        self._start(
            "fetch-watch",
            lambda: watch_streams(self._watches, self._config.stall, self._clock, self._closing),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all jobs and join the threads."""
        for uid in tuple(self._flights):
            await self.cancel(uid)
        await self._challenges.close()
        self._scheduler.close()
        self._closing.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    async def fetch(self, job: FetchJob, on_progress: OnProgress | None = None) -> FetchOutcome:
        """Bring all files of the job to disk, verified; or stop with one failure.

        A second call for the same uid joins the first, whatever else its job says. If every caller
        is cancelled, the job is. `on_progress` runs on the event loop.

        Raises:
            FetchCancelledError: `cancel` was called, or the engine closes.
        """
        flight = self._flights.get(job.uid)
        if flight is None:
            flight = _Flight(asyncio.create_task(self._run(job), name=f"fetch-{job.uid}"))
            flight.task.add_done_callback(_note_seen)
            self._flights[job.uid] = flight
        flight.waiters += 1
        if on_progress is not None:
            flight.listeners.append(on_progress)
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.task.cancelled():
                raise FetchCancelledError(job.uid) from None
            if flight.waiters == 1:
                await self.cancel(job.uid)
            raise
        finally:
            flight.waiters -= 1
            if on_progress is not None:
                flight.listeners.remove(on_progress)

    async def challenge(self, job: FetchJob, blobs: Mapping[str, Path]) -> frozenset[str]:
        """Paths of the job's files of whose bytes the source has shown parts chosen by chance.

        `blobs` holds the bytes that are here, by path. Nothing is written. What the source could
        not show, or not now, is left out: the bytes here must not be used for it.

        Raises:
            FetchCancelledError: `cancel` was called, or the engine closes.
        """
        return await self._challenges.run(job, blobs)

    async def cancel(self, uid: str) -> None:
        """Stop a job and return when no thread touches its files any more; no-op if there is none.

        Its partial files and journals stay; `forget` drops what is kept in memory.
        """
        self._challenges.stop(uid)
        flight = self._flights.get(uid)
        if flight is None:
            return
        if flight.state is None:
            flight.task.cancel()
        else:
            self._scheduler.stop(flight.state)
        await asyncio.wait([flight.task])

    async def forget(self, uid: str) -> None:
        """Cancel the job and drop what was kept in memory for its next try."""
        await self.cancel(uid)
        self._parked.forget(uid)

    def verified_bytes(self, uid: str) -> int | None:
        """How far the job is, or None if there is none. Any thread may ask."""
        flight = self._flights.get(uid)
        if flight is None:
            return None
        state = flight.state
        return 0 if state is None else state.progress().verified_bytes

    def find_pieces(
        self, uid: str, source_digest: str, path: str, first: int, end: int
    ) -> tuple[Path, int] | None:
        """A partial file, and how many pieces from `first` on are right. Any thread may ask."""
        flight = self._flights.get(uid)
        state = None if flight is None else flight.state
        if state is None or state.spec.source_digest != source_digest:
            return None
        file = next((file for file in state.files if file.path == path), None)
        if file is None:
            return None
        return file.partial.location, self._scheduler.verified_run(file, first, end)

    def counters(self) -> FetchCounters:
        """Totals since the engine was made."""
        return self._board.snapshot()

    def begin_load(self, uid: str, now: float) -> float:
        """When the load began of which this is the first try, or one more after it failed."""
        return self._board.egress.begin(uid, now)

    def take_source(self, uid: str) -> LoadSource:
        """Where the bytes of the version's transfer came from."""
        return self._board.egress.take_source(uid)

    def keep_egress(self, uids: frozenset[str], loading: frozenset[str]) -> None:
        """Bytes are counted by namespace and source while one of these versions is wanted.

        Tries count as one load while the version is among those `loading`.
        """
        self._board.egress.keep(uids, loading)

    async def _run(self, job: FetchJob) -> FetchOutcome:
        try:
            async with self._slots:
                return await self._run_now(job)
        finally:
            del self._flights[job.uid]

    async def _run_now(self, job: FetchJob) -> FetchOutcome:
        flight = self._flights[job.uid]
        files = await asyncio.to_thread(self._parked.prepare, job)
        state = flight.state = JobState(job, files)
        state.future.set_running_or_notify_cancel()
        self._scheduler.submit(state)
        done = asyncio.ensure_future(asyncio.wrap_future(state.future))
        try:
            while not done.done():
                await asyncio.wait([done], timeout=self._config.progress_seconds)
                self._tell(flight, state)
        except asyncio.CancelledError:
            self._scheduler.stop(state)
            await asyncio.wait([done])
            raise
        finally:
            await asyncio.to_thread(self._parked.park, job, files)
        if state.is_cancelled:
            raise FetchCancelledError(job.uid)
        outcome = done.result()
        if outcome.failure is None:
            self._parked.forget(job.uid)
        return outcome

    def _tell(self, flight: _Flight, state: JobState) -> None:
        if flight.listeners:
            progress = state.progress()
            for listener in tuple(flight.listeners):
                listener(progress)

    def _interrupt(self, job: JobState) -> None:
        for watch in self._watches:
            watch.interrupt_job(job)
        if self._throttle is not None:
            self._throttle.wake()
        if self._gate is not None:
            self._gate.wake()

    def _start(self, name: str, body: Callable[[], None]) -> None:
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)


def _note_seen(task: asyncio.Task[FetchOutcome]) -> None:
    """Callers that were cancelled do not ask for the outcome; asyncio would complain."""
    if not task.cancelled():
        task.exception()
