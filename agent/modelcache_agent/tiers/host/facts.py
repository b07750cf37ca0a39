"""What start-up finds out about locking memory on this node."""

from __future__ import annotations

import mmap
import os
import re
import resource
import struct
from pathlib import Path
from typing import Final

from modelcache_agent.decide.host_fitness import HostFacts
from modelcache_agent.mounts import find_mount, parse_mounts
from modelcache_agent.tiers.host.cgroups import find_limit
from modelcache_agent.tiers.host.pages import FileMap, count_resident_bytes, drop_cached

_PROC: Final = Path("/proc")
_CAP_IPC_LOCK: Final = 14
# The identity map of the namespace that the kernel started with.
_ALL_UIDS: Final = ["0", "0", "4294967295"]
_PROBE_BYTES: Final = 4 * 1024 * 1024
_FRAME: Final = (1 << 55) - 1
_COMPOUND_TAIL: Final = 1 << 16


def find_facts(store: Path) -> HostFacts:
    """Everything that decides whether the tier can be. Writes and removes a small probe file.

    Raises:
        OSError: /proc does not answer.
    """
    memory = read_meminfo()
    limit = find_limit()
    fault, huge = _probe(store)
    return HostFacts(
        is_root=os.geteuid() == 0,
        can_lock=_has_capability(),
        lock_limit_bytes=_find_lock_limit(),
        in_user_namespace=(_PROC / "self/uid_map").read_text().split() != _ALL_UIDS,
        file_system=_find_file_system(store),
        kernel=_parse_release(os.uname().release),
        memory_bytes=memory["MemTotal"],
        cgroup_limit_bytes=limit.limit_bytes,
        cgroup_version=limit.version,
        swap_bytes=memory.get("SwapTotal", 0),
        huge_folios=huge,
        probe_fault=fault,
    )


def read_meminfo() -> dict[str, int]:
    """/proc/meminfo, in bytes. Raises OSError."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", (_PROC / "meminfo").read_text(), re.MULTILINE)
    return {name: int(number) * 1024 for name, number in found}


def _has_capability() -> bool:
    status = (_PROC / "self/status").read_text()
    found = re.search(r"^CapEff:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and bool(int(found.group(1), 16) >> _CAP_IPC_LOCK & 1)


def _find_lock_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _find_file_system(store: Path) -> str:
    text = (_PROC / "self/mountinfo").read_text("utf-8", "surrogateescape")
    mount = find_mount(parse_mounts(text), store.resolve())
    return "an unknown file system" if mount is None else mount.file_system


def _parse_release(release: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (0, 0) if found is None else (int(found.group(1)), int(found.group(2)))


def _probe(store: Path) -> tuple[str | None, bool | None]:
    """What went wrong with locking a file of this store, and whether its folios are huge."""
    path = store / f".use-probe-{os.getpid()}.tmp"
    try:
        path.write_bytes(bytes(_PROBE_BYTES))
        pages = FileMap(path)
        try:
            os.fsync(pages.fd)
            return _try(pages), _has_huge_folios(pages)
        finally:
            pages.close()
    except OSError as error:
        return f"locking a file of the store: {error.strerror}", None
    finally:
        path.unlink(missing_ok=True)


def _try(pages: FileMap) -> str | None:
    pages.lock(0, pages.size_bytes)
    if count_resident_bytes(pages.fd) < pages.size_bytes:
        return "locked pages of the store are not in the page cache"
    drop_cached(pages.fd)
    if count_resident_bytes(pages.fd) < pages.size_bytes:
        return "locked pages of the store leave the page cache"
    return None


def _has_huge_folios(pages: FileMap) -> bool | None:
    """True if a page is the tail of a larger one; None where the kernel does not say."""
    address = pages.address
    try:
        with (_PROC / "self/pagemap").open("rb") as maps, (_PROC / "kpageflags").open("rb") as all_:
            maps.seek(address // mmap.PAGESIZE * 8)
            count = _PROBE_BYTES // mmap.PAGESIZE
            frames = [entry & _FRAME for entry in struct.unpack(f"{count}Q", maps.read(8 * count))]
            if not all(frames):
                return None
            return any(_read_flags(all_.fileno(), frame) & _COMPOUND_TAIL for frame in frames)
    except (OSError, struct.error):
        return None


def _read_flags(fd: int, frame: int) -> int:
    return int(struct.unpack("Q", os.pread(fd, 8, 8 * frame))[0])
