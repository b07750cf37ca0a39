"""An own copy of one file, and what its bytes are.

A hard link would let the former owner go on writing. A reflink shares the blocks until one side
writes, so it costs neither room nor time; where the file system has none, the bytes are copied.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from blake3 import blake3

from modelcache_agent.adopt.tree import AdoptError, TreeFile, describe
from modelcache_api.manifest import PIECE_BYTES, ContentFile

_FICLONE: Final = 0x40049409
_NO_REFLINK: Final = frozenset(
    {errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.EPERM, errno.ENOSYS}
)

Clone = Callable[[int, int], bool]


def clone(source: int, target: int) -> bool:
    """Make the target share the source's blocks; False where that is not possible."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_REFLINK:
            return False
        raise
    return True


def take_copy(file: TreeFile, target: Path, clone: Clone = clone) -> ContentFile:
    """Copy the file to a new, durable one and say what its bytes are.

    Raises:
        AdoptError: it changed meanwhile, cannot be read, or there is no room.
    """
    try:
        source = os.open(file.location, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise AdoptError(f"{file.path!a} cannot be read: {describe(error)}") from None
    try:
        own = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _copy(file, source, own, clone)
            os.fsync(own)
            return _read_content(file, own)
        finally:
            os.close(own)
    except OSError as error:
        raise AdoptError(f"{file.path!a} cannot be copied: {describe(error)}") from None
    finally:
        os.close(source)


def _copy(file: TreeFile, source: int, own: int, clone: Clone) -> None:
    before = os.fstat(source)
    # What was looked at, and not what somebody put in its way since.
    is_expected = Path(f"/proc/self/fd/{source}").readlink() == file.location
    if not stat.S_ISREG(before.st_mode) or not is_expected:
        raise AdoptError(f"{file.path!a} was replaced: stop what writes to the tree")
    if not clone(source, own):
        if before.st_size:
            os.posix_fallocate(own, 0, before.st_size)
        _copy_bytes(source, own)
    after = os.fstat(source)
    is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    if not is_same or before.st_size != file.size_bytes or os.fstat(own).st_size != before.st_size:
        raise AdoptError(f"{file.path!a} changed while it was read: stop what writes to it")


def _copy_bytes(source: int, own: int) -> None:
    buffer = memoryview(bytearray(PIECE_BYTES))
    offset = 0
    while count := os.preadv(source, [buffer], offset):
        done = 0
        while done < count:
            done += os.pwrite(own, buffer[done:count], offset + done)
        offset += count


def _read_content(file: TreeFile, own: int) -> ContentFile:
    """Of the own copy: nobody else can change what was hashed."""
    whole = hashlib.sha256()
    pieces = []
    for start in range(0, file.size_bytes, PIECE_BYTES):
        piece = os.pread(own, PIECE_BYTES, start)
        whole.update(piece)
        pieces.append(blake3(piece).hexdigest())
    # The agent reads the device when it proves the pieces; the cache is for others.
    os.posix_fadvise(own, 0, 0, os.POSIX_FADV_DONTNEED)
    return ContentFile(file.path, file.size_bytes, whole.hexdigest(), tuple(pieces))
