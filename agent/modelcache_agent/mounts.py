"""Which mount a folder lies on, by the text of /proc/self/mountinfo. Pure.

Devices alone do not tell: in a container `/` is an overlay, so that every volume, also a folder of
the node's root disk, lies on another device than `/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_ROOT_FIELD: Final = 3
_FEWEST_FIELDS: Final = 5


@dataclass(frozen=True, slots=True)
class Mount:
    """`top` is the folder within the file system that appears at `point`."""

    device: str
    top: str
    point: str
    file_system: str = ""


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """All mounts, in the order in which they were made."""
    rows = (line.split(" ") for line in mountinfo.splitlines())
    return tuple(
        Mount(row[2], _decode(row[_ROOT_FIELD]), _decode(row[_ROOT_FIELD + 1]), _type(row))
        for row in rows
        if len(row) > _FEWEST_FIELDS
    )


def describe_missing_disk(mountinfo: str, folder: PurePath) -> str | None:
    """Why the folder (absolute, without links) may lie on the node's root disk, or None.

    A disk of its own is there if a whole file system is mounted at the folder or above it. A part
    of one is as likely a folder of the root disk, as for a hostPath without a mount under it.
    """
    mounts = parse_mounts(mountinfo)
    mount = find_mount(mounts, folder)
    root = find_mount(mounts, PurePath("/"))
    if mount is None or root is None or mount.point == "/":
        return "lies on the root file system"
    if mount.device == root.device:
        return f"lies on the root's disk, mounted once more at {mount.point}"
    if mount.top != "/":
        return f"lies on the folder {mount.top} of a disk, which may be the node's root disk"
    return None


def find_mount(mounts: tuple[Mount, ...], folder: PurePath) -> Mount | None:
    """The innermost mount around the folder; of several at one point the last one is seen."""
    around = [mount for mount in mounts if folder.is_relative_to(mount.point)]
    innermost = max((len(PurePath(mount.point).parts) for mount in around), default=0)
    seen = [mount for mount in around if len(PurePath(mount.point).parts) == innermost]
    return seen[-1] if seen else None


def _type(row: list[str]) -> str:
    """The word after the lone dash, before which stands a varying number of fields."""
    return row[row.index("-") + 1] if "-" in row[:-1] else ""


def _decode(field: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), field)
