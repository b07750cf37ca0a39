"""How far one file is: which pieces are where, and its digest in file order.

Pure bookkeeping: the scheduler's lock guards every method; hashing, reads and writes happen
outside, in the stream threads.
"""

from __future__ import annotations

import hashlib
import threading
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.transfer_plan import Part, choose_part, count_pieces
from modelcache_agent.fetch.checksum import start_checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelcache_agent.fetch.buffers import Buffer
    from modelcache_agent.fetch.job import FetchedFile, FetchFile
    from modelcache_agent.fetch.journal import Journal
    from modelcache_agent.fetch.partial import Fingerprint, PartialFile
    from modelcache_api.wire import GrantedFile

# States of a piece, one byte each, so that a search for the next one runs in C.
MISSING: Final = 0
BUSY: Final = 1
"""A stream fetches or proves it."""
FOUND: Final = 2
"""The journal of an earlier run names it; it must be proved."""
READY: Final = 3
"""Written and verified; it waits for its turn in the digest."""
HASHED: Final = 4


class Phase(Enum):
    """What may be done with the file as a whole."""

    CLOSED = auto()
    OPENING = auto()
    OPEN = auto()
    FINISHING = auto()
    FINISHED = auto()


class FileState:
    """One file of a job."""

    def __init__(self, spec: FetchFile, partial: PartialFile, journal: Journal) -> None:
        self.spec = spec
        self.partial = partial
        self.journal = journal
        self.size_bytes = spec.source.size_bytes
        self.path = spec.source.path
        self.phase = Phase.CLOSED
        self.grant_lock = threading.Lock()
        self.grant: GrantedFile | None = None
        self.grant_was_refreshed = False
        self.failures = 0
        self.streams = 0
        self.not_before = 0.0
        self.ranges_ignored = False
        self.result: FetchedFile | None = None
        self.fingerprint: Fingerprint | None = None
        self.content_checked = False
        self.digest_retries = 0
        self.mismatched: set[int] = set()
        self.is_hashing = False
        self.is_revived = False
        self.reset()

    def reset(self) -> None:
        """Forget all pieces; their bytes must be fetched again."""
        pieces = count_pieces(self.size_bytes)
        self.states = bytearray(pieces)
        self.digests: list[bytes | None] = [None] * pieces
        self.parked: dict[int, Buffer] = {}
        self.sha256 = hashlib.sha256()
        self.checksum = start_checksum(self.spec)
        self.next_hash = 0
        self.content_checked = False

    def adopt(self, pieces: dict[int, bytes]) -> None:
        """Take over what the journal of an earlier run names."""
        for piece, digest in pieces.items():
            self.states[piece] = FOUND
            self.digests[piece] = digest

    def revive(self) -> None:
        """Make a parked, unfinished file usable for the next try; what is verified stays so."""
        self.phase = Phase.CLOSED
        self.grant = None
        self.grant_was_refreshed = False
        self.failures = 0
        self.not_before = 0.0
        self.mismatched.clear()
        self.is_revived = True

    def written_down(self) -> dict[int, bytes] | None:
        """The pieces on disk of a revived file, or None for a new one."""
        if not self.is_revived:
            return None
        return {
            piece: digest
            for piece, digest in enumerate(self.digests)
            if digest is not None and self.states[piece] != MISSING
        }

    def expected_piece(self, piece: int) -> bytes | None:
        """The piece's blake3 in the content manifest, or None if that is not known."""
        pieces = self._expected_pieces()
        return bytes.fromhex(pieces[piece]) if len(pieces) == len(self.states) else None

    def _expected_pieces(self) -> tuple[str, ...]:
        if self.spec.expected is not None:
            return self.spec.expected.pieces
        return () if self.grant is None else self.grant.pieces

    def may_serve(self, piece: int) -> bool:
        """True if the piece is on disk and is what the content manifest says."""
        if self.states[piece] not in (READY, HASHED):
            return False
        expected = self.expected_piece(piece)
        return expected is not None and expected == self.digests[piece]

    def expected_sha256(self) -> str | None:
        """The whole file's sha256, or None if it is not known."""
        if self.spec.expected is not None:
            return self.spec.expected.sha256
        return None if self.grant is None else self.grant.sha256

    @property
    def is_fully_hashed(self) -> bool:
        """True if every piece has entered the digest."""
        return self.next_hash == len(self.states)

    @property
    def verified_pieces(self) -> int:
        """Pieces that are written and verified."""
        return self.states.count(READY) + self.states.count(HASHED)

    def take_part(self, max_pieces: int) -> Part | None:
        """The next run of missing pieces, now busy; None if there is none."""
        if self.ranges_ignored:
            return self._take_whole()
        part = choose_part(
            self.states, wanted=MISSING, from_piece=self.next_hash, max_pieces=max_pieces
        )
        if part is not None:
            for piece in range(part.first_piece, part.first_piece + part.pieces):
                self.states[piece] = BUSY
        return part

    def _take_whole(self) -> Part | None:
        """The server sends nothing but whole files: one stream reads all of it."""
        if self.streams or MISSING not in self.states:
            return None
        for piece, state in enumerate(self.states):
            if state == MISSING:
                self.states[piece] = BUSY
        return Part(0, len(self.states))

    def take_proof(self, window: int) -> int | None:
        """A piece to read back from disk, now busy; None if there is none.

        Pieces of an earlier run are proved a little ahead of the digest; a verified piece whose
        buffer was given away is read again when it is its turn.
        """
        if self.is_hashing or self.is_fully_hashed:
            return None
        front = self.next_hash
        if self.states[front] == READY and front not in self.parked:
            self.states[front] = BUSY
            return front
        for piece in range(front, min(front + window, len(self.states))):
            if self.states[piece] == FOUND:
                self.states[piece] = BUSY
                return piece
        return None

    def give_up_pieces(self, first: int, end: int) -> None:
        """Pieces of a broken part that are still busy are missing again."""
        for piece in range(first, end):
            if self.states[piece] == BUSY:
                self.states[piece] = MISSING

    def park(self, piece: int, digest: bytes, buffer: Buffer) -> None:
        """The piece is on disk and verified; its buffer waits for the digest."""
        self.states[piece] = READY
        self.digests[piece] = digest
        self.parked[piece] = buffer

    def begin_hashing(self) -> Buffer | None:
        """The buffer of the next piece for the digest, or None if it is not there."""
        if self.is_fully_hashed:
            return None
        return self.parked.pop(self.next_hash, None)

    def hash_next(self, view: memoryview) -> None:
        """The bytes of the next piece; blocks, and is called by one thread at a time."""
        self.sha256.update(view)
        if self.checksum is not None:
            self.checksum.update(view)

    def end_hashing(self) -> None:
        """The next piece has entered the digest."""
        self.states[self.next_hash] = HASHED
        self.next_hash += 1

    def take_parked(self) -> Iterator[Buffer]:
        """Give up all waiting buffers; their pieces are read back later."""
        while self.parked:
            yield self.parked.popitem()[1]
