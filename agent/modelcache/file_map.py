"""A file's bytes in this process: its pages in the node's page cache, shared with all readers."""

from __future__ import annotations

import errno
import mmap
import os
import warnings
from pathlib import Path
from typing import BinaryIO, Final

from modelcache.errors import BadFileError, CopiedWarning, ModelCacheError

# File systems without shared pages: some of FUSE, some network file systems.
_NO_MMAP: Final = {errno.ENODEV, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EPERM}
_READ_BYTES: Final = 16 << 20
# A private map books no memory for pages that nobody may ever write. Python names it from 3.13 on.
_MAP_NORESERVE: Final = 0x4000


class FileMap:
    """One file, mapped whole. It lives as long as anything that was made of its `buffer`.

    By default a private copy-on-write map: who writes gets the page for himself, and no other
    reader, nor the cache, sees it. With `read_only` the memory itself refuses: numpy and
    memoryview raise an error, and torch, which knows no such memory, ends the process.
    """

    def __init__(self, path: Path, file: BinaryIO, size: int, *, read_only: bool) -> None:
        self.path = path
        self._identity = _identify(file.fileno())
        self.copied_bytes = 0
        self.buffer: memoryview = self._map(file, size, read_only=read_only)

    def reopen(self) -> int:
        """A descriptor of the file. Raises BadFileError if the path shows another one by now."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            fd = None
        if fd is not None and _identify(fd) == self._identity:
            return fd
        if fd is not None:
            os.close(fd)
        raise BadFileError(
            f"{self.path}: it was replaced, changed or removed since it was opened: open the "
            "weights again"
        )

    def _map(self, file: BinaryIO, size: int, *, read_only: bool) -> memoryview:
        protection = mmap.PROT_READ | (0 if read_only else mmap.PROT_WRITE)
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        try:
            return memoryview(mmap.mmap(file.fileno(), size, flags=flags, prot=protection))
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise ModelCacheError(
                    f"{self.path}: the kernel refuses a private map of {size} bytes (strict "
                    "overcommit, or an address space limit): attach with read_only=True"
                ) from error
            if error.errno not in _NO_MMAP:
                raise
        return self._read(file, size, read_only=read_only)

    def _read(self, file: BinaryIO, size: int, *, read_only: bool) -> memoryview:
        warnings.warn(
            f"{self.path}: its file system cannot map files, so {size} bytes are copied",
            CopiedWarning,
            stacklevel=2,
        )
        copy = bytearray(size)
        view, done = memoryview(copy), 0
        while done < size:
            count = os.preadv(file.fileno(), [view[done : done + _READ_BYTES]], done)
            if count == 0:
                raise BadFileError(f"{self.path}: it ended after {done} of {size} bytes")
            done += count
        self.copied_bytes = size
        return view.toreadonly() if read_only else view


def _identify(fd: int) -> tuple[int, int, int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def count_private_bytes(paths: frozenset[Path]) -> int:
    """Bytes of pages of these files that this process has written to, and so has for itself."""
    private, ours = 0, False
    with Path("/proc/self/smaps").open(encoding="utf-8", errors="replace") as maps:
        for line in maps:
            key, _, rest = line.partition(" ")
            if not key.endswith(":"):
                fields = line.split(maxsplit=5)
                ours = len(fields) > 5 and Path(fields[5].rstrip("\n")) in paths  # noqa: PLR2004
            elif ours and key == "Anonymous:":
                private += int(rest.split()[0]) * 1024
    return private
