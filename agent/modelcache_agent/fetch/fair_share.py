"""Which job a free stream goes to. The scheduler's lock guards every method; nothing is blocked.

Streams are shared equally: the job with the fewest goes first. Jobs with as many as each other
take turns by bytes (start-time fair queuing), so that with fewer streams than jobs, too, one
model's small files wait for one part of another's large file, not for all of it. Parts are not
interrupted, so such a model then gets less than an equal share, and never nothing. A job that comes
late, or paused, is owed nothing for the time before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelcache_agent.fetch.job_state import FetchPart, ProvePiece
from modelcache_api.manifest import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.fetch.job_state import JobState, Task

# A request costs its round trip, however few bytes it asks for.
_TASK_BYTES: Final = 64 * 1024


class FairShare:
    """`now_bytes` is the virtual time: how far the job that was served last had come."""

    def __init__(self) -> None:
        self._now_bytes = 0

    def order(self, jobs: Iterable[JobState]) -> list[JobState]:
        """The jobs, the one that is to be served next first."""
        return sorted(jobs, key=lambda job: (job.active, max(job.served_bytes, self._now_bytes)))

    def charge(self, task: Task) -> None:
        """The task was given to a stream."""
        job = task.job
        self._now_bytes = max(job.served_bytes, self._now_bytes)
        job.served_bytes = self._now_bytes + max(_TASK_BYTES, _size_of(task))


def _size_of(task: Task) -> int:
    match task:
        case FetchPart(_, file, part):
            return part.end(file.size_bytes) - part.start()
        case ProvePiece():
            return PIECE_BYTES
        case _:
            return 0
