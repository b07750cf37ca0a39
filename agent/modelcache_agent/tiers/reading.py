"""Reading published files again, from the device: pieces by blake3, and the whole by sha256.

Direct reads see what is on the disk and leave the page cache of readers alone. Where the file
system has none, what the cache holds of a piece is dropped before and after it is read.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from blake3 import blake3

from modelcache_agent.decide.transfer_plan import count_pieces, piece_length
from modelcache_agent.fetch.buffers import ALIGNMENT, Buffer
from modelcache_api.manifest import PIECE_BYTES

# The device or file system says itself that the bytes are lost. All other errors (too many open
# files, no permission) say nothing about the bytes.
BYTES_ARE_LOST: Final = frozenset(
    {errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA, errno.ENOENT, errno.ELOOP}
)
_NO_DIRECT: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
# A read that waits for its share of the bandwidth waits for so much at once.
_CHUNK_BYTES: Final = 1024 * 1024

Take = Callable[[int], bool]
"""Waits until so many bytes may be read; False: stop."""


class StoppedError(Exception):
    """The caller asked to stop; what was read so far counts."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Which file is read, and the blake3 of its pieces, as far as its record can be read."""

    blob: str
    path: str
    location: Path
    size_bytes: int
    sha256: str
    inode: int
    mtime_ns: int
    pieces: tuple[str, ...]

    @property
    def has_pieces(self) -> bool:
        """True if single pieces can be told right from wrong."""
        return len(self.pieces) == count_pieces(self.size_bytes)


@dataclass(slots=True)
class Slice:
    """How far one look went: pieces before `next_piece` are right, `bad_piece` is not."""

    next_piece: int
    bad_piece: int | None = None
    bytes_read: int = 0
    was_stopped: bool = False


@dataclass(slots=True)
class Whole:
    """What is known after all of the file was read; `pieces` are the blake3 that were found."""

    sha256: str | None = None
    pieces: list[str | None] = field(default_factory=list)
    bytes_read: int = 0
    was_stopped: bool = False


def read_slice(reading: Reading, first_piece: int, most_pieces: int, take: Take) -> Slice:
    """Compare pieces with the record until one differs, the slice ends, or `take` says stop.

    Raises:
        OSError: nothing is known of the bytes.
    """
    seen = Slice(first_piece)
    end = min(len(reading.pieces), first_piece + most_pieces)
    try:
        with _opened(reading) as file:
            while seen.next_piece < end:
                found = file.read(seen.next_piece, take)
                if found is None or blake3(found).hexdigest() != reading.pieces[seen.next_piece]:
                    seen.bad_piece = seen.next_piece
                    break
                seen.next_piece += 1
                seen.bytes_read += len(found)
    except StoppedError:
        seen.was_stopped = True
    return seen


def read_whole(reading: Reading, take: Take) -> Whole:
    """Hash all pieces and the whole. `sha256` None: some bytes cannot be read.

    Raises:
        OSError: nothing is known of the bytes.
    """
    seen, whole = Whole(), hashlib.sha256()
    try:
        with _opened(reading) as file:
            for piece in range(count_pieces(reading.size_bytes)):
                found = file.read(piece, take)
                seen.pieces.append(None if found is None else blake3(found).hexdigest())
                if found is not None:
                    whole.update(found)
                    seen.bytes_read += len(found)
    except StoppedError:
        seen.was_stopped = True
    if None not in seen.pieces:
        seen.sha256 = whole.hexdigest()
    return seen


class _File:
    """An open file; each piece overwrites the one before."""

    def __init__(self, fd: int, size_bytes: int, *, is_direct: bool) -> None:
        self._fd = fd
        self._size = size_bytes
        self._is_direct = is_direct
        self._buffer = Buffer()

    def read(self, piece: int, take: Take) -> memoryview | None:
        """The piece as it lies on the device, or None if the device cannot read it.

        Raises:
            StoppedError, OSError
        """
        offset, length = piece * PIECE_BYTES, piece_length(self._size, piece)
        self._drop_cached(offset, length)
        done = 0
        try:
            while done < length:
                # A direct read is a whole number of blocks, and may end beyond the file's end.
                wanted = min(_CHUNK_BYTES, -(-(length - done) // ALIGNMENT) * ALIGNMENT)
                if not take(min(wanted, length - done)):
                    raise StoppedError
                count = self._read_some(self._buffer.view[done : done + wanted], offset + done)
                if count == 0:
                    break
                done += count
                if self._is_direct and done < length and done % ALIGNMENT:
                    break
        except OSError as error:
            if error.errno not in BYTES_ARE_LOST:
                raise
            return None
        finally:
            self._drop_cached(offset, length)
        return self._buffer.view[: min(done, length)]

    def _read_some(self, view: memoryview, offset: int) -> int:
        try:
            return os.preadv(self._fd, [view], offset)
        except OSError as error:
            if not self._is_direct or error.errno not in _NO_DIRECT:
                raise
        # Some file systems open with O_DIRECT and refuse the read.
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        self._is_direct = False
        self._drop_cached(offset, len(view))
        return os.preadv(self._fd, [view], offset)

    def _drop_cached(self, offset: int, length: int) -> None:
        if not self._is_direct:
            os.posix_fadvise(self._fd, offset, length, os.POSIX_FADV_DONTNEED)


@contextmanager
def _opened(reading: Reading) -> Iterator[_File]:
    fd, is_direct = open_for_reading(reading.location)
    try:
        yield _File(fd, reading.size_bytes, is_direct=is_direct)
    finally:
        os.close(fd)


def open_for_reading(location: Path) -> tuple[int, bool]:
    """A descriptor, and whether it reads past the page cache. Raises OSError."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(location, flags | os.O_DIRECT), True
    except OSError as error:
        if error.errno not in _NO_DIRECT:
            raise
    return os.open(location, flags), False
