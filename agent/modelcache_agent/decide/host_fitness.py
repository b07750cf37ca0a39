"""Whether this node can lock published files in memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelcache_api.quantities import format_bytes

# Where a hard link, a map and the page cache are one and the same memory, as we have seen it.
FIT_FILE_SYSTEMS: Final = ("ext4", "xfs")
# Page tables, slab and the pages on their way in, beside the locked ones.
MARGIN_PERCENT: Final = 15
POPULATE_SINCE: Final = (5, 14)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What start-up has found out. Sizes in bytes; None: no limit.

    `probe_fault`: what went wrong with a small file of the store, or None.
    `cgroup_limit_bytes`: the least memory limit of our cgroup and those above it.
    """

    is_root: bool
    can_lock: bool
    lock_limit_bytes: int | None
    in_user_namespace: bool
    file_system: str
    kernel: tuple[int, int]
    memory_bytes: int
    cgroup_limit_bytes: int | None = None
    cgroup_version: int | None = None
    swap_bytes: int = 0
    huge_folios: bool | None = None
    probe_fault: str | None = None


def describe_unfit(facts: HostFacts, capacity_bytes: int) -> str | None:
    """Why the tier stays off, with the cure; None if the node can lock that much."""
    return (
        _describe_privilege(facts, capacity_bytes)
        or _describe_file_system(facts)
        or _describe_memory(facts, capacity_bytes)
        or (f"a probe failed: {facts.probe_fault}" if facts.probe_fault else None)
    )


def needed_memory(capacity_bytes: int) -> int:
    """Memory limit that the tier needs, in bytes."""
    return capacity_bytes * (100 + MARGIN_PERCENT) // 100


def describe_notes(facts: HostFacts) -> tuple[str, ...]:
    """What an administrator may want to know of a node that is fit."""
    notes = []
    if facts.kernel < POPULATE_SINCE:
        version = ".".join(map(str, facts.kernel))
        notes.append(f"Linux {version} cannot populate a map (5.14 can): mlock alone reads")
    if facts.swap_bytes:
        notes.append(
            f"swap is on ({format_bytes(facts.swap_bytes)}) and handled: locked pages of files "
            "are never written to it"
        )
    if facts.huge_folios is not None:
        how = "huge" if facts.huge_folios else "small"
        notes.append(f"the page cache of this file system uses {how} folios")
    if facts.cgroup_version == 1:
        notes.append("memory is limited by a cgroup of version 1")
    if facts.cgroup_limit_bytes is None:
        notes.append("no cgroup limits our memory: the ledger alone keeps to the capacity")
    return tuple(notes)


def _describe_privilege(facts: HostFacts, capacity_bytes: int) -> str | None:
    if facts.in_user_namespace:
        return (
            "the agent runs in a user namespace, where no capability locks memory: set "
            "hostUsers: true for its pod"
        )
    if not facts.is_root:
        return "the agent is not root: only a file's owner is told which of its pages are cached"
    limit = facts.lock_limit_bytes
    if not facts.can_lock and limit is not None and limit < capacity_bytes:
        return (
            f"the agent may lock {_amount(limit)} (RLIMIT_MEMLOCK), the capacity is "
            f"{_amount(capacity_bytes)}: give its container the capability IPC_LOCK"
        )
    return None


def _describe_file_system(facts: HostFacts) -> str | None:
    if facts.file_system in FIT_FILE_SYSTEMS:
        return None
    return (
        f"the store lies on {facts.file_system}, whose pages cannot be locked for all readers: put "
        f"it on {' or '.join(FIT_FILE_SYSTEMS)}"
    )


def _describe_memory(facts: HostFacts, capacity_bytes: int) -> str | None:
    needed = needed_memory(capacity_bytes)
    sentence = f"a capacity of {_amount(capacity_bytes)} needs {_amount(needed)}"
    limit = facts.cgroup_limit_bytes
    if limit is not None and needed > limit:
        return (
            f"{sentence}, the agent's memory limit is {_amount(limit)}: raise the limit or lower "
            "the capacity"
        )
    if needed > facts.memory_bytes:
        return f"{sentence}, the node has {_amount(facts.memory_bytes)}: lower the capacity"
    return None


def _amount(size_bytes: int) -> str:
    return f"{format_bytes(size_bytes)} ({size_bytes} bytes)"
