"""How far one job is, and which of its files is next. The scheduler's lock guards every method."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.transfer_plan import piece_length
from modelcache_agent.fetch.file_state import HASHED, READY, FileState, Phase
from modelcache_agent.fetch.job import FetchFailure, FetchOutcome, Progress
from modelcache_api.manifest import PIECE_BYTES

if TYPE_CHECKING:
    from modelcache_agent.decide.transfer_plan import Part
    from modelcache_agent.fetch.job import FetchJob


@dataclass(frozen=True, slots=True)
class OpenFile:
    """Create the partial file and read its journal."""

    job: JobState
    file: FileState


@dataclass(frozen=True, slots=True)
class FetchPart:
    """Read some missing pieces from the source."""

    job: JobState
    file: FileState
    part: Part


@dataclass(frozen=True, slots=True)
class ProvePiece:
    """Read one piece back from disk and compare it with what was written down."""

    job: JobState
    file: FileState
    piece: int


_USABLE: Final = (Phase.CLOSED, Phase.OPEN)
Task = OpenFile | FetchPart | ProvePiece


class JobState:
    """One job between submission and outcome."""

    def __init__(self, spec: FetchJob, files: list[FileState]) -> None:
        self.spec = spec
        self.files = files
        self.waiting = deque(
            sorted(
                (file for file in files if file.phase is Phase.CLOSED),
                key=lambda file: file.size_bytes,
            )
        )
        self.open: list[FileState] = []
        self.active = 0
        self.served_bytes = 0
        self.failures = 0
        self.not_before = 0.0
        self.is_stopped = False
        self.is_cancelled = False
        self.failure: FetchFailure | None = None
        self.future: Future[FetchOutcome] = Future()

    @property
    def is_over(self) -> bool:
        """True if nothing is left to do and no stream works on it."""
        return self.active == 0 and (self.is_stopped or not (self.waiting or self.open))

    def stop(self, failure: FetchFailure | None) -> None:
        """Hand out no more tasks. The first failure is the one that is reported."""
        if not self.is_stopped:
            self.is_stopped = True
            self.failure = failure

    def next_task(self, now: float, streams: int, part_pieces: int) -> Task | None:
        """The next thing to do for this job, or None for now.

        Files with the fewest streams come first, so a large file never starves small ones; a new
        file is opened before a second stream joins an open one.
        """
        if self.is_stopped or now < self.not_before:
            return None
        ready = sorted(
            (f for f in self.open if f.phase in _USABLE and now >= f.not_before),
            key=lambda file: (file.streams, file.size_bytes),
        )
        idle = [file for file in ready if file.streams == 0]
        return (
            self._task_of(idle, streams, part_pieces)
            or self._open_another(streams)
            or self._task_of(ready[len(idle) :], streams, part_pieces)
        )

    def _task_of(self, files: list[FileState], streams: int, part_pieces: int) -> Task | None:
        for file in files:
            if file.phase is Phase.CLOSED:  # opening it failed before
                file.phase = Phase.OPENING
                return OpenFile(self, file)
            piece = file.take_proof(window=streams)
            if piece is not None:
                return ProvePiece(self, file, piece)
            part = file.take_part(part_pieces)
            if part is not None:
                return FetchPart(self, file, part)
        return None

    def _open_another(self, streams: int) -> Task | None:
        """One large file at a time is kept open beside small ones; small ones come first."""
        if not self.waiting or len(self.open) >= streams:
            return None
        has_large = any(file.size_bytes > PIECE_BYTES for file in self.open)
        file = self.waiting.popleft() if has_large else self.waiting.pop()
        file.phase = Phase.OPENING
        self.open.append(file)
        return OpenFile(self, file)

    def next_wake(self, now: float) -> float | None:
        """When a file that pauses may go on (monotonic), or None."""
        times = [max(self.not_before, file.not_before) for file in self.open]
        if self.waiting:
            times.append(self.not_before)
        return min((time for time in times if time > now), default=None)

    def outcome(self) -> FetchOutcome:
        """What the job came to."""
        done = tuple(file.result for file in self.files if file.result is not None)
        return FetchOutcome(self.spec.uid, done, self.failure)

    def progress(self) -> Progress:
        """How far it is."""
        return Progress(
            uid=self.spec.uid,
            verified_bytes=sum(_verified_bytes(file) for file in self.files),
            total_bytes=self.spec.size_bytes,
            finished_files=sum(file.result is not None for file in self.files),
            total_files=len(self.files),
        )


def _verified_bytes(file: FileState) -> int:
    if not file.states:
        return 0
    done = file.verified_pieces * PIECE_BYTES
    if file.states[-1] in (READY, HASHED):
        last = len(file.states) - 1
        done -= PIECE_BYTES - piece_length(file.size_bytes, last)
    return done
