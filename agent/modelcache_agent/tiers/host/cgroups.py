"""Our memory cgroup: its limit, and how much of it cannot be reclaimed. Version 1 and 2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Version 1 says "no limit" by the largest multiple of a page.
_NO_LIMIT: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """`version` None: no memory cgroup is seen. `limit_bytes` None: nothing limits us.

    `held_bytes`: what the kernel could not take back under the limit: anonymous and locked pages.
    """

    version: int | None = None
    limit_bytes: int | None = None
    held_bytes: int = 0


def find_limit(
    proc: Path = Path("/proc/self"), root: Path = Path("/sys/fs/cgroup")
) -> CgroupMemory:
    """The tightest limit of our cgroup and those above it, as far as they are seen."""
    memberships = _read(proc / "cgroup")
    first = re.search(r"^\d+:(?:[\w=]+,)*memory(?:,[\w=]+)*:(.*)$", memberships, re.MULTILINE)
    if first is not None:
        return _tightest(1, root / "memory", first.group(1))
    second = re.search(r"^0::(.*)$", memberships, re.MULTILINE)
    if second is not None:
        return _tightest(2, root, second.group(1))
    return CgroupMemory()


def _tightest(version: int, mount: Path, membership: str) -> CgroupMemory:
    found = CgroupMemory(version)
    for folder in _folders(mount, membership):
        limit = _read_limit(folder, version)
        if limit is not None and (found.limit_bytes is None or limit < found.limit_bytes):
            found = CgroupMemory(version, limit, _read_held(folder, version))
    return found


def _folders(mount: Path, membership: str) -> Iterator[Path]:
    """Ours first. In a container the mount's top is ours, whatever the membership says."""
    ours = mount / membership.strip("/")
    yield from (folder for folder in (ours, *ours.parents) if folder.is_relative_to(mount))


def _read_limit(folder: Path, version: int) -> int | None:
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    text = _read(folder / name).strip()
    if not text.isdecimal() or int(text) >= _NO_LIMIT:
        return None
    return int(text)


def _read_held(folder: Path, version: int) -> int:
    text = _read(folder / "memory.stat")
    names = ("total_rss", "total_unevictable") if version == 1 else ("anon", "unevictable")
    numbers = dict(re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE))
    return sum(int(numbers.get(name, 0)) for name in names)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
