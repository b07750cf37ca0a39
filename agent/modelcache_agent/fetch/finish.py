"""The last steps of a file: whole digest, content, fsync. Nothing is reported before all passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelcache_agent.decide.content_check import (
    describe_content_fault,
    describe_foreign_content,
    header_bytes_needed,
)
from modelcache_agent.fetch.file_state import Phase
from modelcache_agent.fetch.job import FetchedFile
from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_api.weights_names import is_weights_name

if TYPE_CHECKING:
    from modelcache_agent.fetch.file_state import FileState
    from modelcache_agent.fetch.scheduler import Scheduler


def refuse_foreign_beginning(file: FileState, view: memoryview) -> None:
    """Check the content as soon as its first piece is there, before the rest is fetched.

    Raises:
        RefusalError: NotAModel.
    """
    head = bytes(view[:512])
    if header_bytes_needed(file.path, file.size_bytes, head) > len(view):
        if (kind := describe_foreign_content(head)) is not None and is_weights_name(file.path):
            raise _not_a_model(file, f"it is {kind}")
        return
    fault = describe_content_fault(
        file.path, file.size_bytes, lambda offset, length: bytes(view[offset : offset + length])
    )
    if fault is not None:
        raise _not_a_model(file, fault)
    file.content_checked = True


def discard_file(file: FileState) -> None:
    """Remove what is on disk of a file whose bytes are of no use."""
    file.partial.discard()
    file.journal.discard()


def finish_file(scheduler: Scheduler, file: FileState) -> None:
    """Verify the whole file and make it durable.

    Raises:
        RefusalError: DigestMismatch (the first one restarts the file), NotAModel, StoreError.
    """
    sha256 = file.sha256.hexdigest()
    expected = file.expected_sha256()
    if expected is not None and sha256 != expected:
        _refuse_digest(scheduler, file, f"the file has sha256 {sha256}, expected {expected}")
    if file.checksum is not None and (fault := file.checksum.describe_mismatch()) is not None:
        _refuse_digest(scheduler, file, fault)
    if not file.content_checked:
        fault = describe_content_fault(file.path, file.size_bytes, file.partial.read_bytes)
        if fault is not None:
            discard_file(file)
            raise _not_a_model(file, fault)
    try:
        file.partial.sync()
    except RefusalError:
        # The kernel reports a lost write once and then calls the page clean: trust none of it.
        discard_file(file)
        raise
    file.fingerprint = file.partial.fingerprint()
    file.partial.close()
    file.journal.close()
    file.result = FetchedFile(
        path=file.path,
        size_bytes=file.size_bytes,
        sha256=sha256,
        pieces=tuple(digest.hex() for digest in file.digests if digest is not None),
        partial_path=file.partial.location,
    )
    file.phase = Phase.FINISHED


def _refuse_digest(scheduler: Scheduler, file: FileState, fault: str) -> None:
    file.digest_retries += 1
    if file.digest_retries == 1:
        file.journal.start()
        scheduler.restart_file(file)
        cure = Cure.RETRY
    else:
        discard_file(file)
        cure = Cure.NONE
    raise RefusalError(Refusal(Reason.DIGEST_MISMATCH, f"{quote(file.path)}: {fault}", cure))


def _not_a_model(file: FileState, fault: str) -> RefusalError:
    message = f"{quote(file.path)} is not a model: {fault}"
    return RefusalError(Refusal(Reason.NOT_A_MODEL, message, Cure.NONE))
