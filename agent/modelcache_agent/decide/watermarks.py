"""When the file system is so full that the cache gives way before the kubelet acts. Pure.

Use is counted as the kubelet counts it: what is not free for ordinary users, in bytes and in files
(inodes). Whose bytes they are does not matter here; `relief` gives up only our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelcache_api.quantities import format_bytes

_WHOLE: Final = 100
# Freed bytes show with a delay on some file systems; a round that frees all at once frees too much.
_MOST_A_ROUND_PERCENT: Final = 10


@dataclass(frozen=True, slots=True)
class Space:
    """What the file system says of itself. `total_files` 0: it has no limit of files."""

    total_bytes: int
    free_bytes: int
    total_files: int = 0
    free_files: int = 0


@dataclass(frozen=True, slots=True)
class Watermarks:
    """In percent of the file system; pressure begins at `high` and ends at `low`. 100: never."""

    high: int
    low: int

    @property
    def is_off(self) -> bool:
        """True if no use is too much."""
        return self.high >= _WHOLE

    def kept_free_bytes(self, space: Space) -> int:
        """What newcomers leave free, so that none of them brings pressure with it."""
        least_free_percent = _WHOLE + 1 - self.high
        return 0 if self.is_off else -(-space.total_bytes * least_free_percent // _WHOLE)


NO_WATERMARKS: Final = Watermarks(_WHOLE, _WHOLE)


@dataclass(frozen=True, slots=True)
class Pressure:
    """The file system is too full. `excess_bytes` are above the low watermark.

    `round_bytes` is the most that one plan may give up. `message` changes by whole percents only.
    """

    excess_bytes: int
    round_bytes: int
    message: str


def judge_pressure(space: Space, marks: Watermarks, *, was_pressed: bool) -> Pressure | None:
    """The pressure now, or None. Between the two marks what was before holds on."""
    if marks.is_off or space.total_bytes <= 0:
        return None
    used = _percent(space.total_bytes, space.free_bytes)
    used_files = _percent(space.total_files, space.free_files)
    worst = max(used, used_files)
    if worst < marks.high and not (was_pressed and worst > marks.low):
        return None
    excess = space.total_bytes - space.free_bytes - space.total_bytes * marks.low // _WHOLE
    return Pressure(
        excess_bytes=max(0, excess),
        round_bytes=space.total_bytes * _MOST_A_ROUND_PERCENT // _WHOLE,
        message=_describe(space, marks, used, used_files),
    )


def _percent(total: int, free: int) -> int:
    return 0 if total <= 0 else _WHOLE - free * _WHOLE // total


def _describe(space: Space, marks: Watermarks, used: int, used_files: int) -> str:
    parts = []
    if used > marks.low:
        surplus = (used - marks.low) * space.total_bytes // _WHOLE
        parts.append(
            f"{used} % of the file system's {format_bytes(space.total_bytes)} are used, some "
            f"{format_bytes(surplus)} too much"
        )
    if used_files > marks.low:
        parts.append(f"{used_files} % of its {space.total_files} files are used")
    return (
        f"{' and '.join(parts)} (watermarks {marks.high} and {marks.low} %): nothing is fetched "
        f"until {marks.low} % or less are used: free space on the node's disk, or give the cache "
        "a disk of its own"
    )
