"""A published file's pages: populated, locked, counted and dropped.

Through ctypes, which lets other threads run meanwhile: Python's own `mmap.madvise` holds the GIL
for as long as the disk reads.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
for _name in ("munmap", "mlock"):
    getattr(_libc, _name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]

# Linux' number since 5.14; Python's mmap module does not name it.
_MADV_POPULATE_READ: Final = 22
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
# One answer of mincore is a byte a page; only its lowest bit has a meaning.
_MINCORE_BYTES: Final = 1 << 30
_LOWEST_BIT: Final = bytes(number & 1 for number in range(256))


class FileMap:
    """A read-only shared map of a whole file, and the descriptor that it was made of.

    Closing it unlocks; it drops nothing. Offsets are multiples of the page size.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self.size_bytes = os.fstat(self.fd).st_size
            self._address = _map(self.fd, self.size_bytes) if self.size_bytes else None
        except OSError:
            os.close(self.fd)
            raise

    def lock(self, offset: int, length: int, *, populate: bool = True) -> None:
        """Read the pages of this part if they are not cached, and lock them.

        `populate` reads faster than mlock; a kernel that does not know it is no error.

        Raises:
            OSError: bytes cannot be read, or no more may be locked.
        """
        start = self._at(offset)
        if populate:
            _populate(start, length)
        _check(_libc.mlock(start, length))

    def view(self, offset: int, length: int) -> memoryview:
        """Bytes of a part that is locked: reading others could end the process."""
        return memoryview((ctypes.c_ubyte * length).from_address(self._at(offset))).cast("B")

    def close(self) -> None:
        """Unmap, which unlocks, and close the descriptor."""
        self.unmap()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def unmap(self) -> None:
        """Unlock all of it; the descriptor stays open."""
        if self._address is not None:
            _check(_libc.munmap(self._address, self.size_bytes))
            self._address = None

    @property
    def address(self) -> int:
        """Where the map begins. Raises ValueError if there is none."""
        return self._at(0)

    def _at(self, offset: int) -> int:
        if self._address is None:
            message = "the file is empty or its map was closed"
            raise ValueError(message)
        return self._address + offset


def count_resident_bytes(fd: int) -> int:
    """Bytes of the file in the page cache, rounded up to pages.

    Only the file's owner, or who may write to it, is told the truth; others hear that all is there.

    Raises:
        OSError: the kernel does not say.
    """
    size = os.fstat(fd).st_size
    if size == 0:
        return 0
    address, resident = _map(fd, size), 0
    try:
        for offset in range(0, size, _MINCORE_BYTES):
            length = min(_MINCORE_BYTES, size - offset)
            answer = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
            _check(_libc.mincore(address + offset, length, answer))
            resident += answer.raw.translate(_LOWEST_BIT).count(1)
    finally:
        _libc.munmap(address, size)
    return resident * mmap.PAGESIZE


def drop_cached(fd: int) -> None:
    """Drop the file's clean pages that nobody maps. Raises OSError."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _map(fd: int, size: int) -> int:
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        raise _last_error()
    return int(address)


def _populate(start: int, length: int) -> None:
    while _libc.madvise(start, length, _MADV_POPULATE_READ):
        number = ctypes.get_errno()
        if number == errno.EINVAL:
            return
        if number == errno.EFAULT:
            # What would be a SIGBUS for a reader.
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if number not in (errno.EINTR, errno.EAGAIN):
            raise OSError(number, os.strerror(number))


def _check(result: int) -> None:
    if result:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
