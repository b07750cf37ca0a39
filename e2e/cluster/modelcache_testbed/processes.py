"""Processes that outlive the tool, and telling them from others of the same number.

A pid alone is no identity: numbers are used again. A process is ours only if boot, pid and start
time all match what the process itself wrote down before it became the program.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Counted after the command name in /proc/<pid>/stat.
_STATE_FIELD, _THREADS_FIELD, _START_FIELD = 0, 17, 19

# The child writes its own identity and then becomes the program, so no moment exists in which
# it runs unrecorded, even if the tool is killed right after starting it.
_LAUNCH = """
read -r boot < /proc/sys/kernel/random/boot_id
read -r stat < /proc/$$/stat
printf '%s\\n%s\\n' "$boot" "$stat" > "$1" || exit 126
cd "$2" || exit 126
shift 2
exec "$@"
"""


@dataclass(frozen=True)
class ProcessIdentity:
    """One process for good: which boot, which pid, started at which tick."""

    boot_id: str
    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Read the identity of a living process; ProcessLookupError if there is none."""
        stat = _read_stat(pid)
        if stat is None:
            raise ProcessLookupError(pid)
        return cls(_BOOT_ID.read_text().strip(), pid, _start_ticks(stat))

    @classmethod
    def parse(cls, text: str) -> ProcessIdentity | None:
        """Read what a child wrote about itself; None if it is incomplete."""
        boot, _, stat = text.strip().partition("\n")
        try:
            return cls(boot, int(stat.split(" ", 1)[0]), _start_ticks(stat))
        except (ValueError, IndexError):
            return None

    def started_seconds(self) -> float:
        """Return when this process started, in seconds since the epoch."""
        boot = next(
            line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")
        )
        return int(boot.split()[1]) + self.start_ticks / os.sysconf("SC_CLK_TCK")

    def is_alive(self) -> bool:
        """Say whether this very process still runs; a zombie does not.

        A killed program whose first thread is a zombie lives, and holds its ports, until the
        last of its threads is gone.
        """
        stat = _read_stat(self.pid)
        if stat is None or self.boot_id != _BOOT_ID.read_text().strip():
            return False
        if _start_ticks(stat) != self.start_ticks:
            return False
        if _state(stat) == "Z" and _threads(stat) <= 1:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            return False
        return _state(stat) != "X"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if this very process still runs.

        The pidfd pins the process between the check and the signal.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)

    def end(self, *, grace_seconds: float) -> None:
        """Ask the process to end, then make it. Returns when it is gone."""
        self.signal(signal.SIGTERM)
        try:
            wait_until(lambda: not self.is_alive(), seconds=grace_seconds, what="end")
        except TestbedError:
            self.signal(signal.SIGKILL)
            wait_until(lambda: not self.is_alive(), seconds=10, what=f"kill of pid {self.pid}")


def _read_stat(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _fields(stat: str) -> list[str]:
    return stat.rpartition(")")[2].split()  # the name itself may hold blanks and brackets


def _state(stat: str) -> str:
    return _fields(stat)[_STATE_FIELD]


def _threads(stat: str) -> int:
    return int(_fields(stat)[_THREADS_FIELD])


def _start_ticks(stat: str) -> int:
    return int(_fields(stat)[_START_FIELD])


def start_detached(
    argv: Sequence[str],
    *,
    pid_file: Path,
    log_file: Path,
    folder: Path,
    environment: Mapping[str, str],
) -> ProcessIdentity:
    """Start a program in a session of its own, output appended to a file.

    Returns when the pid file names it, so whoever asks next finds this process and not the last.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        "/bin/sh",
        ["/bin/sh", "-c", _LAUNCH, "sh", str(pid_file), str(folder), *argv],
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    identity = ProcessIdentity.of(pid)
    wait_until(
        lambda: read_pid_file(pid_file) == identity or not identity.is_alive(),
        seconds=10,
        what=f"{pid_file} being written by {argv[0]}",
        interval_seconds=0.005,
    )
    return identity


def read_pid_file(pid_file: Path) -> ProcessIdentity | None:
    """Return the identity in a pid file; None if there is no readable one."""
    try:
        return ProcessIdentity.parse(pid_file.read_text())
    except FileNotFoundError:
        return None
