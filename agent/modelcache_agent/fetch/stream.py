"""One stream: a thread that takes tasks until the engine closes.

The heavy steps (socket reads, both hashes, disk writes) all run without the interpreter's lock, so
the streams share the machine's cores.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from blake3 import blake3

from modelcache_agent.decide.transfer_plan import piece_length
from modelcache_agent.fetch.connection import ConnectionCache
from modelcache_agent.fetch.cut_reader import CutReader
from modelcache_agent.fetch.file_state import BUSY
from modelcache_agent.fetch.finish import discard_file, finish_file, refuse_foreign_beginning
from modelcache_agent.fetch.job_state import FetchPart, OpenFile, ProvePiece
from modelcache_agent.fetch.part_reader import PartReader, RangesIgnoredError
from modelcache_agent.fetch.partial import describe_store_error
from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_agent.fetch.routes import (
    OWN_FAULTS,
    PEER_STALL,
    Answer,
    NoRoute,
    PeerRoute,
    SourceRoute,
    judge_answer,
)
from modelcache_agent.fetch.scheduler import StoppedError
from modelcache_agent.fetch.verdict import Ask
from modelcache_api.manifest import PIECE_BYTES
from modelcache_api.names import Reason
from modelcache_api.quoted import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelcache_agent.fetch.buffers import Buffer
    from modelcache_agent.fetch.clock import Clock
    from modelcache_agent.fetch.config import FetchConfig
    from modelcache_agent.fetch.counters import CounterBoard
    from modelcache_agent.fetch.file_state import FileState
    from modelcache_agent.fetch.finder import RouteFinder
    from modelcache_agent.fetch.grants import GrantDesk
    from modelcache_agent.fetch.job_state import JobState, Task
    from modelcache_agent.fetch.scheduler import Scheduler
    from modelcache_agent.fetch.watch import StreamWatch
    from modelcache_api.wire import GrantedFile

_log = logging.getLogger(__name__)


class Stream:
    """Body of one stream thread."""

    def __init__(
        self,
        config: FetchConfig,
        scheduler: Scheduler,
        desk: GrantDesk,
        watch: StreamWatch,
        clock: Clock,
        counters: CounterBoard,
        finder: RouteFinder,
    ) -> None:
        self._finder = finder
        self._scheduler = scheduler
        self._desk = desk
        self._watch = watch
        self._clock = clock
        self._counters = counters
        self._used: GrantedFile | None = None
        self._cache = ConnectionCache(config, watch.set_socket, lambda: counters.add("connections"))

    def run(self) -> None:
        """Take tasks until the engine closes. Never raises."""
        while (task := self._scheduler.next_task()) is not None:
            self._watch.begin(task.job)
            self._used = None
            try:
                self._perform(task)
            except StoppedError:
                pass
            except RefusalError as error:
                self._scheduler.attempt_failed(task.job, task.file, error.refusal, self._used)
            except OSError as error:  # the network's were refusals by now: this is the store
                refusal = describe_store_error(task.file.path, error)
                self._scheduler.attempt_failed(task.job, task.file, refusal)
            except Exception as error:  # noqa: BLE001 - a bug costs its job, never the stream
                _log.exception("a stream failed unexpectedly")
                message = f"{quote(task.file.path)}: internal error: {type(error).__name__}"
                refusal = Refusal(Reason.TRANSFER_FAILED, message, Cure.NONE)
                self._scheduler.attempt_failed(task.job, task.file, refusal)
            finally:
                self._watch.end()
                self._scheduler.end_task(task)
        self._cache.close()

    def _perform(self, task: Task) -> None:
        match task:
            case OpenFile(_, file):
                self._open(file)
            case ProvePiece(job, file, piece):
                self._prove(job, file, piece)
            case FetchPart(job, file, part):
                self._fetch(job, file, part.first_piece, part.first_piece + part.pieces)
        if self._scheduler.may_finish(task.file):
            finish_file(self._scheduler, task.file)
            self._counters.add("verified_bytes", task.file.size_bytes)

    def _open(self, file: FileState) -> None:
        revived = file.written_down()
        exists = revived is not None or file.partial.fingerprint() is not None
        known = file.journal.load() if exists and revived is None else None
        if revived is None and known is None:
            file.partial.discard()
        try:
            file.partial.open()
        except RefusalError as error:
            if error.refusal.reason is Reason.INSUFFICIENT_SPACE:
                discard_file(file)
            raise
        file.journal.resume(revived or known or {})
        self._scheduler.opened(file, known)

    def _prove(self, job: JobState, file: FileState, piece: int) -> None:
        length = piece_length(file.size_bytes, piece)
        try:
            buffer = self._scheduler.acquire(job, file, piece)
            with self._released_on_error(buffer, length):
                count = file.partial.read(piece, buffer)
                self._counters.add("proved_bytes", count)
                digest = blake3(buffer.view[:length]).digest()
            if count == length and digest == file.digests[piece]:
                self._deliver(job, file, piece, digest, buffer)
            else:
                self._scheduler.release(buffer)
                self._counters.add("refetched_bytes", length)
        finally:
            self._scheduler.give_up(file, piece, piece + 1)

    def _fetch(self, job: JobState, file: FileState, first: int, end: int) -> None:
        """Read the pieces [first, end) by one request, from wherever that is best."""
        try:
            grant = self._desk.get(job, file)
            route = self._finder.find(job, file, first)
        except BaseException:
            self._scheduler.give_up(file, first, end)
            raise
        match route:
            case SourceRoute():
                self._used = grant
                self._read(job, file, grant, first, end, self._source_reader(file))
            case PeerRoute():
                self._fetch_from_peer(job, file, grant, first, end, route)
            case NoRoute(pause):
                self._scheduler.give_up(file, first, end)
                self._scheduler.postpone(file, pause)

    def _source_reader(self, file: FileState) -> PartReader | CutReader:
        reader = PartReader(self._cache, self._watch, self._clock, self._counters)
        cut = file.spec.source.cut
        return reader if cut is None else CutReader(reader, cut)

    def _fetch_from_peer(
        self,
        job: JobState,
        file: FileState,
        grant: GrantedFile,
        first: int,
        end: int,
        route: PeerRoute,
    ) -> None:
        """Failures here cost the file nothing: the part is read from somewhere else."""
        answer, message = Answer.BUSY, ""  # whatever else ends the part is not its fault
        reader = PartReader(self._cache, self._watch, self._clock, self._counters)
        self._watch.use_policy(PEER_STALL)
        try:
            self._read(job, file, grant, first, end, reader, route)
            answer, message = Answer.SERVED, ""
        except RefusalError as error:
            if error.refusal.reason in OWN_FAULTS:
                raise
            answer, message = judge_answer(error.refusal, reader.status), error.refusal.message
        finally:
            self._watch.use_policy(None)
            self._finder.report(job.spec.uid, route, answer, message)

    def _read(
        self,
        job: JobState,
        file: FileState,
        grant: GrantedFile,
        first: int,
        end: int,
        reader: PartReader | CutReader,
        route: PeerRoute | None = None,
    ) -> None:
        current = first
        try:
            ask = Ask(
                file.path,
                file.size_bytes,
                None if route is not None else file.spec.source.etag,
                first * PIECE_BYTES,
                min(end * PIECE_BYTES, file.size_bytes),
                None if route is not None else file.spec.source.last_modified,
            )
            last_byte = reader.open(job, grant, ask, route)
            while current < end and self._end_of(file, current) <= last_byte:
                is_last = current == end - 1
                self._fetch_piece(job, file, current, reader, is_last=is_last, route=route)
                current += 1
            if current == first:
                message = f"{quote(file.path)}: the answer holds less than one piece"
                raise RefusalError(Refusal(Reason.TRANSFER_FAILED, message))
        except RangesIgnoredError:
            if route is not None:
                message = f"{quote(file.path)}: the other node sent what was not asked for"
                raise RefusalError(Refusal(Reason.TRANSFER_FAILED, message)) from None
            self._scheduler.read_whole(file)
        finally:
            reader.close()
            self._scheduler.give_up(file, current, end)

    def _fetch_piece(
        self,
        job: JobState,
        file: FileState,
        piece: int,
        reader: PartReader | CutReader,
        *,
        is_last: bool,
        route: PeerRoute | None,
    ) -> None:
        length = piece_length(file.size_bytes, piece)
        buffer = self._scheduler.acquire(job, file, piece)
        with self._released_on_error(buffer, length):
            view = buffer.view[:length]
            hasher = blake3()
            reader.read(view, piece * PIECE_BYTES, hasher.update)
            if is_last:
                reader.expect_end()
            digest = hasher.digest()
            self._check_piece(file, piece, digest, is_from_peer=route is not None)
            if piece == 0:
                refuse_foreign_beginning(file, view)
            is_new = file.states[piece] == BUSY
            if is_new:
                file.partial.write(piece, buffer)
                file.journal.append(piece, digest)
        if is_new:
            self._deliver(job, file, piece, digest, buffer)
        else:
            # Read on the way to a later one; what is verified is never written again.
            self._counters.add("refetched_bytes", length)
            self._scheduler.release(buffer)

    @contextmanager
    def _released_on_error(self, buffer: Buffer, length: int) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._counters.add("refetched_bytes", length)
            self._scheduler.release(buffer)
            raise

    def _check_piece(
        self, file: FileState, piece: int, digest: bytes, *, is_from_peer: bool
    ) -> None:
        """Compare with what is known; one mismatch is a retry, the second is final.

        What another node sends counts against that node alone.
        """
        expected = file.expected_piece(piece)
        if file.states[piece] != BUSY:
            expected = file.digests[piece]
        if expected is None or digest == expected:
            return
        again = piece in file.mismatched
        if not is_from_peer:
            file.mismatched.add(piece)
        message = (
            f"{quote(file.path)}: piece {piece} has blake3 {digest.hex()},"
            f" expected {expected.hex()}"
        )
        raise RefusalError(
            Refusal(Reason.DIGEST_MISMATCH, message, Cure.NONE if again else Cure.RETRY)
        )

    def _deliver(
        self, job: JobState, file: FileState, piece: int, digest: bytes, buffer: Buffer
    ) -> None:
        """Park the piece; then, if nobody else does, hash all that is ready in file order."""
        if not self._scheduler.park(job, file, piece, digest, buffer):
            return
        while (ready := self._scheduler.next_for_digest(file)) is not None:
            file.hash_next(ready.view[: piece_length(file.size_bytes, file.next_hash)])
            self._scheduler.entered_digest(file, ready)

    @staticmethod
    def _end_of(file: FileState, piece: int) -> int:
        return min((piece + 1) * PIECE_BYTES, file.size_bytes)
