"""What the kernel says of pages, and other processes that hold some."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

from modelcache_agent.tiers.host.pages import count_resident_bytes

_READER = textwrap.dedent(
    """
    import mmap, sys
    file = open(sys.argv[1], "rb")
    if sys.argv[2] == "map":
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        file.close()
        sum(pages[::4096])
    print("ready", flush=True)
    sys.stdin.read()
    """
)


def resident(path: Path) -> int:
    """Bytes of the file in the page cache, in whole pages."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return count_resident_bytes(fd)
    finally:
        os.close(fd)


def in_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def disk_reads() -> int:
    """Bytes that this process made the disk read."""
    return int(Path("/proc/self/io").read_text().split("read_bytes: ")[1].split()[0])


def locked_bytes() -> int:
    """Bytes that this process has locked."""
    return 1024 * int(Path("/proc/self/status").read_text().split("VmLck:")[1].split()[0])


def drop(path: Path) -> None:
    """Write the file back and drop what nobody maps of it."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@contextmanager
def reading(path: Path, *, maps: bool = True):
    """Another process that has the file mapped and touched, or only open."""
    with subprocess.Popen(
        [sys.executable, "-c", _READER, path, "map" if maps else "open"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.stdin.close()
