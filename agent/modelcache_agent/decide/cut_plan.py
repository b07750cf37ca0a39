"""Which requests bring a part of a cut file. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from modelcache_api.cut import Cut, Range

# What lies between two ranges is read and dropped up to this many bytes: an object store takes
# longer to answer a second question than to send them.
MAX_GAP_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Literal:
    """Bytes that are known."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes [start, end) of the source's file by one request; the rest of it is dropped."""

    start: int
    end: int
    kept: tuple[Range, ...]


Step = Literal | Request


def plan_reads(cut: Cut, start: int, end: int) -> list[Step]:
    """What bytes [start, end) of the cut file are made of, in order."""
    steps: list[Step] = []
    if start < len(cut.literal):
        steps.append(Literal(cut.literal[start:end]))
    for begin, stop in _overlaps(cut, start, end):
        last = steps[-1] if steps else None
        if isinstance(last, Request) and 0 <= begin - last.end <= MAX_GAP_BYTES:
            steps[-1] = Request(last.start, stop, (*last.kept, (begin, stop)))
        else:
            steps.append(Request(begin, stop, ((begin, stop),)))
    return steps


def _overlaps(cut: Cut, start: int, end: int) -> Iterator[Range]:
    first = max(0, bisect_right(cut.starts, start) - 1)
    for number in range(first, len(cut.ranges)):
        begin, stop = cut.ranges[number]
        position, following = cut.starts[number], cut.starts[number + 1]
        if position >= end:
            return
        begin, stop = begin + max(0, start - position), stop - max(0, following - end)
        if begin < stop:
            yield begin, stop
