"""What a stopped job leaves in memory, so that its next try in this process proves nothing twice.

A file's state is used again only if its partial file is untouched since (same inode, size and
modification time); otherwise the journal on disk is read, as after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelcache_agent.fetch.file_state import FileState, Phase
from modelcache_agent.fetch.journal import Journal, JournalHeader
from modelcache_agent.fetch.partial import (
    JOURNAL_SUFFIX,
    PARTIAL_SUFFIX,
    PartialFile,
    file_stem,
)

if TYPE_CHECKING:
    from modelcache_agent.fetch.job import FetchFile, FetchJob


class ParkedJobs:
    """File states by job. Methods touch the disk and may run in any thread, one at a time a uid."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[FetchJob, list[FileState]]] = {}

    def prepare(self, job: FetchJob) -> list[FileState]:
        """The job's files, resumed where that is safe; foreign leftovers are removed."""
        job.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        stems = {file_stem(file.source.path): file for file in job.files}
        for leftover in job.directory.iterdir():
            ours = leftover.suffix in (PARTIAL_SUFFIX, JOURNAL_SUFFIX)
            if ours and leftover.stem not in stems:
                leftover.unlink(missing_ok=True)
        parked = self._take(job)
        return [self._resume(job, file, parked) for file in job.files]

    def park(self, job: FetchJob, files: list[FileState]) -> None:
        """Close the files and keep their states; streams no longer touch them."""
        for file in files:
            if file.phase is not Phase.FINISHED:
                file.partial.close()
                file.journal.close()
                file.fingerprint = file.partial.fingerprint()
        self._files[job.uid] = (job, files)

    def forget(self, uid: str) -> None:
        """Drop the states of this job."""
        self._files.pop(uid, None)

    def _take(self, job: FetchJob) -> dict[FetchFile, FileState]:
        earlier, files = self._files.pop(job.uid, (None, []))
        if earlier is None or _how(earlier) != _how(job):
            return {}
        return {file.spec: file for file in files}

    def _resume(
        self, job: FetchJob, spec: FetchFile, parked: dict[FetchFile, FileState]
    ) -> FileState:
        fresh = make_file_state(job, spec)
        old = parked.get(spec)
        if old is None or old.fingerprint is None:
            return fresh
        if old.fingerprint != old.partial.fingerprint():
            return fresh
        if old.phase is not Phase.FINISHED:
            old.revive()
        return old


def _how(job: FetchJob) -> tuple[object, ...]:
    """What must be equal for a file's state to be of use."""
    return job.source_digest, job.directory, job.through_memory


def make_file_state(job: FetchJob, spec: FetchFile) -> FileState:
    """The state of a file of which nothing is known; touches no disk."""
    source = spec.source
    stem = job.directory / file_stem(source.path)
    partial = PartialFile(
        stem.with_suffix(PARTIAL_SUFFIX),
        source.path,
        source.size_bytes,
        keep_cached=job.through_memory,
    )
    header = JournalHeader.of(job.uid, job.source_digest, source)
    return FileState(spec, partial, Journal(stem.with_suffix(JOURNAL_SUFFIX), header))
