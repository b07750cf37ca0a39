"""Whether any process has a file open or mapped.

A write lease (fcntl F_SETLEASE) is granted only if nobody else has the inode open, by whatever
name, mount or container, or has it mapped (a map holds the file open after its descriptor is
closed). So asking for one and giving it back answers the question in two system calls, where a
scan of /proc would need to see the processes of all containers. It needs the file's owner or
CAP_LEASE. Tried on Linux 6.18 with ext4 and tmpfs for open files, maps and maps with closed
descriptors; the kernel counts readers since 5.3.
"""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path
from typing import Final

# Linux' number; Python's fcntl module does not name it.
_F_SETSIG: Final = 10


def is_open_elsewhere(path: Path) -> bool:
    """True if another open file description of this inode exists, or it cannot be told.

    Whoever opens the file in the microseconds of the question waits for its end. The kernel then
    tells us by a signal; SIGURG is ignored by default, where SIGIO would end the process.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return has_other_users(fd)
    finally:
        os.close(fd)


def has_other_users(fd: int) -> bool:
    """The same of a file that we have open ourselves, once: by this descriptor.

    Maps that were made of the descriptor are part of its open file and do not count.
    """
    try:
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return True
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def can_tell_use(folder: Path) -> bool:
    """True if leases work on this file system for this process."""
    probe = folder / f".use-probe-{os.getpid()}.tmp"
    probe.touch(0o600)
    try:
        return not is_open_elsewhere(probe)
    finally:
        probe.unlink()
