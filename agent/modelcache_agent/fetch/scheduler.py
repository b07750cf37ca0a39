"""Hands tasks and buffers to the streams, fairly over jobs and files. The engine's only lock."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.transfer_plan import backoff_seconds
from modelcache_agent.fetch.buffers import BufferPool
from modelcache_agent.fetch.fair_share import FairShare
from modelcache_agent.fetch.file_state import BUSY, Phase
from modelcache_agent.fetch.job import FetchFailure
from modelcache_agent.fetch.refusal import Cure, Refusal, bound, retry_after_seconds
from modelcache_api.names import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.fetch.buffers import Buffer
    from modelcache_agent.fetch.clock import Clock
    from modelcache_agent.fetch.config import FetchConfig
    from modelcache_agent.fetch.counters import CounterBoard
    from modelcache_agent.fetch.file_state import FileState
    from modelcache_agent.fetch.job_state import JobState, Task
    from modelcache_api.wire import GrantedFile

# How long a stream waits for a buffer before it takes one from a piece that waits for its digest;
# that piece must then be read back from disk.
_PATIENCE_SECONDS: Final = 1.0
_MAX_SKEW_RETRIES: Final = 3


class StoppedError(Exception):
    """The job was stopped while a stream worked for it."""


class Scheduler:
    """Shared by all streams and the event loop; methods never block on I/O."""

    def __init__(
        self,
        config: FetchConfig,
        clock: Clock,
        counters: CounterBoard,
        on_stop: Callable[[JobState], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._counters = counters
        self._on_stop = on_stop
        self._changed = threading.Condition()
        self._jobs: list[JobState] = []
        self._share = FairShare()
        self._pool = BufferPool(config.buffer_bytes, config.streams)
        self._is_closing = False

    def submit(self, job: JobState) -> None:
        """Take on a job; its future resolves when it is over."""
        with self._changed:
            self._jobs.append(job)
            self._settle(job)
            self._changed.notify_all()

    def stop(self, job: JobState, failure: FetchFailure | None = None) -> None:
        """Hand out nothing more for the job and interrupt its streams.

        Without a failure the job counts as cancelled.
        """
        with self._changed:
            job.is_cancelled = job.is_cancelled or failure is None
            job.stop(failure)
            self._settle(job)
            self._changed.notify_all()
        self._on_stop(job)

    def close(self) -> None:
        """Make every stream end after its present task."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def next_task(self) -> Task | None:
        """Block until there is something to do; None when the engine closes."""
        with self._changed:
            while not self._is_closing:
                now = self._clock.monotonic()
                task = self._choose(now)
                if task is not None:
                    task.job.active += 1
                    task.file.streams += 1
                    return task
                self._clock.wait(self._changed, self._pause(now))
            return None

    def end_task(self, task: Task) -> None:
        """The stream is done with the task, whatever came of it."""
        with self._changed:
            task.job.active -= 1
            task.file.streams -= 1
            if task.file.phase is Phase.FINISHED and task.file in task.job.open:
                task.job.open.remove(task.file)
            self._settle(task.job)
            self._changed.notify_all()

    def acquire(self, job: JobState, file: FileState, piece: int) -> Buffer:
        """A buffer for this piece of the file. Raises StoppedError."""
        with self._changed:
            deadline = self._clock.monotonic() + _PATIENCE_SECONDS
            while True:
                if job.is_stopped:
                    raise StoppedError
                is_late = self._clock.monotonic() >= deadline
                buffer = self._pool.take() or self._steal(file, piece, is_late=is_late)
                if buffer is not None:
                    return buffer
                self._clock.wait(self._changed, _PATIENCE_SECONDS)

    def release(self, buffer: Buffer) -> None:
        """Return a buffer."""
        with self._changed:
            self._pool.give_back(buffer)
            self._changed.notify_all()

    def give_up(self, file: FileState, first: int, end: int) -> None:
        """The pieces [first, end) that a stream took were not delivered."""
        with self._changed:
            file.give_up_pieces(first, end)

    def park(
        self, job: JobState, file: FileState, piece: int, digest: bytes, buffer: Buffer
    ) -> bool:
        """The piece is verified and on disk. True: the caller must now hash what is ready."""
        with self._changed:
            if file.states[piece] != BUSY:
                self._pool.give_back(buffer)
                return False
            file.park(piece, digest, buffer)
            job.failures = file.failures = 0
            file.grant_was_refreshed = False
            if file.is_hashing:
                return False
            file.is_hashing = True
            return True

    def next_for_digest(self, file: FileState) -> Buffer | None:
        """The next buffer in file order, or None, which ends the caller's turn of hashing."""
        with self._changed:
            buffer = file.begin_hashing()
            if buffer is None:
                file.is_hashing = False
                self._changed.notify_all()
            return buffer

    def entered_digest(self, file: FileState, buffer: Buffer) -> None:
        """The buffer's piece was hashed."""
        with self._changed:
            file.end_hashing()
            self._pool.give_back(buffer)
            self._changed.notify_all()

    def may_finish(self, file: FileState) -> bool:
        """True for exactly one caller, once all pieces are in the digest."""
        with self._changed:
            if file.phase is not Phase.OPEN or not file.is_fully_hashed or file.is_hashing:
                return False
            file.phase = Phase.FINISHING
            return True

    def opened(self, file: FileState, found: dict[int, bytes] | None) -> None:
        """The partial file is there; `found` are the pieces its journal names."""
        with self._changed:
            if found:
                file.adopt(found)
            file.phase = Phase.OPEN
            self._changed.notify_all()

    def restart_file(self, file: FileState) -> None:
        """Forget all pieces of the file and fetch it again."""
        with self._changed:
            for buffer in file.take_parked():
                self._pool.give_back(buffer)
            file.reset()
            file.phase = Phase.OPEN
            self._changed.notify_all()

    def read_whole(self, file: FileState) -> None:
        """The server ignores ranges: read the file by one stream from its beginning."""
        with self._changed:
            file.ranges_ignored = True

    def postpone(self, file: FileState, seconds: float) -> None:
        """Nobody has the file's next part now; that is no failure."""
        with self._changed:
            file.not_before = self._clock.monotonic() + seconds

    def verified_run(self, file: FileState, first: int, end: int) -> int:
        """How many pieces from `first` on are on disk and known to be right, up to `end`."""
        with self._changed:
            piece = first
            while piece < min(end, len(file.states)) and file.may_serve(piece):
                piece += 1
            return piece - first

    def attempt_failed(
        self, job: JobState, file: FileState, refusal: Refusal, used: GrantedFile | None = None
    ) -> None:
        """Pause the file and let it try again, or stop the job, by cure and budget.

        `used` is the grant that the refused request was made with, if there was one.
        """
        now = self._clock.monotonic()
        with self._changed:
            if file.phase is Phase.OPENING:
                file.phase = Phase.CLOSED
            verdict = self._judge(job, file, refusal, used)
            if verdict is None:
                self._counters.add_retry(refusal.reason)
                pause = self._pause_after(file, refusal)
                if refusal.whole_job:
                    job.not_before = now + pause
                else:
                    file.not_before = now + pause
                return
        self.stop(job, verdict)

    def _judge(
        self, job: JobState, file: FileState, refusal: Refusal, used: GrantedFile | None
    ) -> FetchFailure | None:
        """The failure that ends the job, or None if there is another try.

        Streams share a file's grant: what one of them says of a grant that another one has
        replaced meanwhile is no news.
        """
        is_news = used is None or used is file.grant
        file.failures += 1
        job.failures += 1
        attempts = _MAX_SKEW_RETRIES if refusal.reason is Reason.CLOCK_SKEW else None
        if refusal.cure is Cure.NONE or file.phase is Phase.FINISHING:
            spent = True
        elif refusal.cure is Cure.REFRESH:
            spent = is_news and file.grant_was_refreshed
            if is_news:
                file.grant_was_refreshed = True
                file.grant = None
        else:
            spent = file.failures >= (attempts or self._config.file_attempts)
            spent = spent or job.failures >= self._config.job_attempts
        if refusal.reason is Reason.CLOCK_SKEW and is_news:
            file.grant = None  # a retry with the same signature is as wrong as before
        if not spent:
            return None
        tries = f" ({file.failures} attempts)" if file.failures > 1 else ""
        message = bound(f"{refusal.message[:480]}{tries}")
        return FetchFailure(refusal.reason, file.path, message, retry_after_seconds(refusal))

    def _pause_after(self, file: FileState, refusal: Refusal) -> float:
        if refusal.cure is Cure.REFRESH:
            return 0.0
        least = refusal.least_pause_seconds
        if refusal.reason is Reason.CLOCK_SKEW:
            least = self._config.skew_retry_seconds
        jittered = backoff_seconds(file.failures - 1, self._clock.jitter(), self._config.backoff)
        return least + jittered

    def _choose(self, now: float) -> Task | None:
        config = self._config
        for job in self._share.order(self._jobs):
            task = job.next_task(now, config.streams, config.part_pieces)
            if task is not None:
                self._share.charge(task)
                return task
        return None

    def _pause(self, now: float) -> float | None:
        wakes = [job.next_wake(now) for job in self._jobs if not job.is_stopped]
        times = [wake - now for wake in wakes if wake is not None]
        return min(times, default=None)

    def _steal(self, file: FileState, piece: int, *, is_late: bool) -> Buffer | None:
        """A buffer of a piece that waits for an earlier one; it is read back at its turn."""
        files = [file] if not is_late else [f for job in self._jobs for f in job.open]
        for victim in files:
            waiting = max(victim.parked, default=-1)
            is_behind = waiting > piece if victim is file else True
            if waiting > victim.next_hash and (is_behind or is_late):
                return victim.parked.pop(waiting)
        return None

    def _settle(self, job: JobState) -> None:
        """Resolve the job's future once nothing is left to do for it."""
        if not job.is_over or job not in self._jobs:
            return
        self._jobs.remove(job)
        for file in job.files:
            for buffer in file.take_parked():
                self._pool.give_back(buffer)
        job.future.set_result(job.outcome())
