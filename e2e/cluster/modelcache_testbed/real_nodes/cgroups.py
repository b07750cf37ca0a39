"""The cgroups of an instance: made for the kubelet, and the sure way to end what is in them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNTS = Path("/proc/self/mounts")
_INHERITED = ("cpuset.cpus", "cpuset.mems")  # empty in a new cgroup v1, and then nothing may run
_END_SECONDS = 20


def hierarchies(*kinds: str) -> list[Path]:
    """Return where the controllers of cgroup v1 are mounted, or cgroups of other kinds."""
    fields = [line.split() for line in _MOUNTS.read_text().splitlines()]
    return [Path(mount[1]) for mount in fields if mount[2] in (kinds or ("cgroup",))]


def tracking_hierarchy() -> Path:
    """Return the hierarchy in which membership is looked up; TestbedError without cgroup v1."""
    for path in hierarchies():
        if path.name == "pids":
            return path
    raise TestbedError(
        "profile nodes needs the controllers of cgroup v1, and this machine has cgroup v2 only:"
        " use the profile kind here"
    )


def create(cgroup: str) -> None:
    """Create a cgroup in every hierarchy, ready to run things in."""
    for hierarchy in hierarchies():
        path = hierarchy / cgroup.lstrip("/")
        path.mkdir(parents=True, exist_ok=True)
        if (path / _INHERITED[0]).exists():
            _inherit_processors(hierarchy, path)


def _inherit_processors(hierarchy: Path, path: Path) -> None:
    if path == hierarchy:
        return
    _inherit_processors(hierarchy, path.parent)
    for name in _INHERITED:
        if not (path / name).read_text().strip():
            (path / name).write_text((path.parent / name).read_text())


def members_file(cgroup: str) -> Path:
    """Return the file into which a process writes itself to become a member."""
    return tracking_hierarchy() / cgroup.lstrip("/") / "cgroup.procs"


def members(cgroup: str) -> list[int]:
    """Return the processes in a cgroup and below it; none if it does not exist."""
    root = tracking_hierarchy() / cgroup.lstrip("/")
    found: list[int] = []
    for path in [root, *_descendants(root)]:
        with contextlib.suppress(FileNotFoundError, OSError):
            found += [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    return found


def _descendants(root: Path) -> Iterator[Path]:
    for folder, names, _files in os.walk(root):
        yield from (Path(folder) / name for name in names)


def end_members(cgroup: str) -> None:
    """End every process in a cgroup and below it; returns when there is none."""

    def is_empty() -> bool:
        remaining = members(cgroup)
        for pid in remaining:
            _kill_member(pid, cgroup)
        return not remaining

    wait_until(is_empty, seconds=_END_SECONDS, what=f"end of the processes in cgroup {cgroup}")


def _kill_member(pid: int, cgroup: str) -> None:
    # The pidfd pins the process, so that membership is still true when the signal is sent.
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if pid in members(cgroup):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def remove(cgroup: str) -> None:
    """Remove an empty cgroup with all below it from every hierarchy; absent is fine."""
    # The runtime makes its own in the empty hierarchy of cgroup v2 beside v1, where there is one.
    for hierarchy in hierarchies("cgroup", "cgroup2"):
        root = hierarchy / cgroup.lstrip("/")
        if not root.exists():
            continue
        for path in sorted(_descendants(root), key=lambda path: len(path.parts), reverse=True):
            _remove_one(path)
        _remove_one(root)


def _remove_one(path: Path) -> None:
    def is_gone() -> bool:
        try:
            path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # the kernel lets go of the last member a moment after it ended
        return True

    wait_until(is_gone, seconds=_END_SECONDS, what=f"end of the cgroup {path}")
