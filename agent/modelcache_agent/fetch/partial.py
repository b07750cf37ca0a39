"""One partial file on disk: space first, then pieces past the page cache, then fsync.

Files that will be locked in memory are written through the page cache instead and stay there.

Names inside the folder are derived from a hash of the path: a key of the source never becomes a
file name here.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.transfer_plan import piece_length
from modelcache_agent.fetch.buffers import ALIGNMENT
from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_api.manifest import PIECE_BYTES
from modelcache_api.names import Reason
from modelcache_api.quoted import quote

if TYPE_CHECKING:
    from pathlib import Path

    from modelcache_agent.fetch.buffers import Buffer

PARTIAL_SUFFIX: Final = ".part"
JOURNAL_SUFFIX: Final = ".journal"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DIRECT: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
# Dirty pages are flushed at least this often, and dropped unless they are to stay.
_FLUSH_PIECES: Final = 4


def file_stem(path: str) -> str:
    """The name, without suffix, of a path's files in the partial folder."""
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Changes if somebody else wrote, replaced or cut the file."""

    inode: int
    size_bytes: int
    mtime_ns: int


def describe_store_error(source_path: str, error: OSError) -> Refusal:
    """What an error of the store's file system means. Only its owner can make room or mend it."""
    name, cause = quote(source_path), error.strerror or type(error).__name__
    if error.errno in _NO_SPACE:
        message = f"{name}: the store's file system is full: {cause}"
        return Refusal(Reason.INSUFFICIENT_SPACE, message, Cure.NONE)
    return Refusal(Reason.STORE_ERROR, f"{name}: the store's file system failed: {cause}")


class PartialFile:
    """Reads and writes of one partial file. Different pieces may be written at the same time."""

    def __init__(
        self, location: Path, source_path: str, size_bytes: int, *, keep_cached: bool = False
    ) -> None:
        self.location = location
        self._source_path = source_path
        self._size = size_bytes
        self._fd = -1
        self._direct_fd = -1
        self._keep_cached = keep_cached
        self._since_flush = 0

    def open(self) -> None:
        """Open or create the file and reserve all of its bytes.

        Raises:
            RefusalError: InsufficientSpace with the numbers, or StoreError.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._part_from_published()
            self._fd = os.open(self.location, flags, 0o600)
            if os.fstat(self._fd).st_size > self._size:
                os.ftruncate(self._fd, self._size)
            if self._size:
                os.posix_fallocate(self._fd, 0, self._size)
            if self._size >= ALIGNMENT and not self._keep_cached:
                self._direct_fd = self._open_direct()
        except OSError as error:
            raise RefusalError(self._refusal(error, "reserved")) from error

    def _part_from_published(self) -> None:
        """A file with a second name was published, perhaps by another version too: never write it.

        That is left of a publication that failed after its end; the bytes are fetched again.
        """
        try:
            found = self.location.lstat()
        except FileNotFoundError:
            return
        if found.st_nlink > 1:
            self.location.unlink()
        elif stat.S_ISREG(found.st_mode) and not found.st_mode & stat.S_IWUSR:
            self.location.chmod(0o600)

    def write(self, piece: int, buffer: Buffer) -> None:
        """Write one whole piece from the buffer. Raises RefusalError."""
        offset, length = piece * PIECE_BYTES, piece_length(self._size, piece)
        try:
            done = self._write_direct(offset, length, buffer)
            while done < length:
                done += os.pwrite(self._fd, buffer.view[done:length], offset + done)
            if self._direct_fd < 0:
                self._flush_sometimes()
        except OSError as error:
            raise RefusalError(self._refusal(error, "written")) from error

    def read(self, piece: int, buffer: Buffer) -> int:
        """Read one piece into the buffer, from the device if possible; returns the bytes read."""
        offset, length = piece * PIECE_BYTES, piece_length(self._size, piece)
        try:
            aligned = length - length % ALIGNMENT
            done = 0
            while self._direct_fd >= 0 and done < aligned:
                count = os.preadv(self._direct_fd, [buffer.view[done:aligned]], offset + done)
                if count == 0 or count % ALIGNMENT:
                    break
                done += count
            while done < length:
                count = os.preadv(self._fd, [buffer.view[done:length]], offset + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise RefusalError(self._refusal(error, "read")) from error
        else:
            return done

    def read_bytes(self, offset: int, length: int) -> bytes:
        """A few bytes, for the check of the content. Raises RefusalError."""
        try:
            return os.pread(self._fd, length, offset)
        except OSError as error:
            raise RefusalError(self._refusal(error, "read")) from error

    def sync(self) -> None:
        """Return when all bytes are on the device. Raises RefusalError."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise RefusalError(self._refusal(error, "flushed")) from error

    def fingerprint(self) -> Fingerprint | None:
        """Of the file under its name, or None if there is none."""
        try:
            found = self.location.lstat()
        except OSError:
            return None
        return Fingerprint(found.st_ino, found.st_size, found.st_mtime_ns)

    def close(self) -> None:
        """Close the descriptors; the file stays."""
        for fd in (self._fd, self._direct_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._direct_fd = -1

    def discard(self) -> None:
        """Close and remove the file."""
        self.close()
        self.location.unlink(missing_ok=True)

    def _open_direct(self) -> int:
        try:
            return os.open(self.location, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _NO_DIRECT:
                return -1
            raise

    def _write_direct(self, offset: int, length: int, buffer: Buffer) -> int:
        if self._direct_fd < 0:
            return 0
        aligned = length - length % ALIGNMENT
        done = 0
        while done < aligned:
            try:
                count = os.pwrite(self._direct_fd, buffer.view[done:aligned], offset + done)
            except OSError as error:
                if error.errno in _NO_DIRECT:
                    break  # some file systems open with O_DIRECT and refuse the write
                raise
            done += count
            if count % ALIGNMENT:
                break
        return done

    def _flush_sometimes(self) -> None:
        self._since_flush += 1
        if self._since_flush >= _FLUSH_PIECES:
            self._since_flush = 0
            os.fdatasync(self._fd)
            if not self._keep_cached:
                os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _refusal(self, error: OSError, verb: str) -> Refusal:
        if error.errno not in _NO_SPACE:
            return describe_store_error(self._source_path, error)
        needed, free = self._space()
        message = (
            f"{quote(self._source_path)}: {self._size} bytes cannot be {verb}: {needed} more are"
            f" needed, {free} are free on the store's file system"
        )
        return Refusal(Reason.INSUFFICIENT_SPACE, message, Cure.NONE)

    def _space(self) -> tuple[int, int]:
        folder = os.statvfs(self.location.parent)
        try:
            held = self.location.lstat().st_blocks * 512
        except OSError:
            held = 0
        return max(0, self._size - held), folder.f_bavail * folder.f_frsize
