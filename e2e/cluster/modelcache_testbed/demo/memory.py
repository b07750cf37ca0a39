"""What the kernel says of processes and of one file's pages. Bytes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from modelcache_agent.tiers.host.pages import count_resident_bytes

_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S{4} [0-9a-f]+ \S+ (\d+)")


@dataclass(frozen=True)
class FileShare:
    """One file in one process: the pages that it has mapped and touched, and its part of them.

    A page that three processes have mapped counts to each for a third in ``proportional``.
    """

    resident: int
    proportional: int


def read_share(pid: int, file: Path) -> FileShare:
    """A process's share of a file."""
    inode, sums, ours = str(file.stat().st_ino), {"Rss": 0, "Pss": 0}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if (mapping := _MAPPING.match(line)) is not None:
            ours = mapping.group(1) == inode
        elif ours and (name := line.partition(":")[0]) in sums:
            sums[name] += _kilobytes(line)
    return FileShare(sums["Rss"], sums["Pss"])


def read_own(pid: int) -> int:
    """Memory that is of no file."""
    return _field(Path(f"/proc/{pid}/smaps_rollup"), "Anonymous")


def read_locked(pid: int) -> int:
    """Memory that the process has locked."""
    return _field(Path(f"/proc/{pid}/status"), "VmLck")


def read_disk_reads(pid: int) -> int:
    """Bytes that it made a disk read since it started."""
    found = re.search(r"^read_bytes: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    return 0 if found is None else int(found.group(1))


def read_cached(file: Path) -> int:
    """Bytes of the file in the page cache, in whole pages."""
    fd = os.open(file, os.O_RDONLY)
    try:
        return count_resident_bytes(fd)
    finally:
        os.close(fd)


def _field(path: Path, name: str) -> int:
    return next(
        (_kilobytes(line) for line in path.read_text().splitlines() if line.startswith(f"{name}:")),
        0,
    )


def _kilobytes(line: str) -> int:
    return 1024 * int(line.split()[1])
