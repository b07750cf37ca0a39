"""Changes that survive a power cut, and removals that do not follow links."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

_BLOCK_BYTES = 512
_SAYS_NOTHING = frozenset({errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP})


def sync_directory(path: Path) -> None:
    """Return when the names in the directory are on the device."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file as a whole: readers and crashes see the old or the new one."""
    temporary = temporary_for(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)


def touch_device(path: Path) -> None:
    """Read the file's first block past the page cache: cached names outlive a dead disk.

    Does nothing where the file is gone or the file system has no direct reads. Raises OSError.
    """
    buffer = mmap.mmap(-1, mmap.PAGESIZE)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.preadv(fd, [buffer], 0)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _SAYS_NOTHING:
            raise


def temporary_for(path: Path) -> Path:
    """Where the file is written before it gets its name; left behind if that is interrupted."""
    return path.with_name(f".{path.name}.tmp")


def is_temporary(path: Path, may_be_name: Callable[[str], bool]) -> bool:
    """True for a regular file that is left of writing a file whose name we give."""
    name = path.name.removeprefix(".").removesuffix(".tmp")
    is_ours = path.name == f".{name}.tmp" and may_be_name(name)
    return is_ours and stat.S_ISREG(path.lstat().st_mode)


def remove_anything(path: Path) -> None:
    """Remove a file, link or tree; nothing there is fine. Links are removed, not followed."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    else:
        path.unlink()


def walk_files(root: Path) -> Iterator[Path]:
    """Everything below the root that is no directory; links are not followed."""
    for folder, directories, files in os.walk(root):
        base = Path(folder)
        for name in files:
            yield base / name
        for name in directories:
            if (base / name).is_symlink():
                yield base / name


def allocated_bytes(root: Path) -> int:
    """Bytes on the device below the root; a file with several names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for path in walk_files(root):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if (found.st_dev, found.st_ino) not in seen:
            seen.add((found.st_dev, found.st_ino))
            total += found.st_blocks * _BLOCK_BYTES
    return total
