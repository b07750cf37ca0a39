"""Which pieces of a file can be put together from other files of this node. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from modelcache_agent.decide.cut_plan import Literal, plan_reads
from modelcache_agent.decide.transfer_plan import count_pieces, piece_length
from modelcache_api.cut import Cut
from modelcache_api.manifest import PIECE_BYTES, SourceFile
from modelcache_api.wire import SharedBytes


@dataclass(frozen=True, slots=True)
class Copy:
    """Some bytes of the file whose number in what is shared is `source`."""

    source: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where bytes [start, end) of the source's file lie."""

    start: int
    end: int
    source: int
    offset: int


def plan_pieces(
    file: SourceFile, shared: Sequence[SharedBytes]
) -> dict[int, tuple[bytes | Copy, ...]]:
    """What each piece is made of, of the pieces all of whose bytes are here."""
    cut = file.cut or Cut(file.size_bytes, b"", ((0, file.size_bytes),))
    extents = [sorted(_extents(number, one), key=_start) for number, one in enumerate(shared)]
    found = {}
    for piece in range(count_pieces(file.size_bytes)):
        start = piece * PIECE_BYTES
        made_of = _make(cut, start, start + piece_length(file.size_bytes, piece), extents)
        if made_of is not None and any(isinstance(part, Copy) for part in made_of):
            found[piece] = tuple(made_of)
    return found


def _extents(number: int, shared: SharedBytes) -> list[_Extent]:
    offset, found = shared.skip, []
    for start, end in shared.ranges:
        found.append(_Extent(start, end, number, offset))
        offset += end - start
    return found


def _start(extent: _Extent) -> int:
    return extent.start


def _make(
    cut: Cut, start: int, end: int, extents: Sequence[Sequence[_Extent]]
) -> list[bytes | Copy] | None:
    parts: list[bytes | Copy] = []
    for step in plan_reads(cut, start, end):
        if isinstance(step, Literal):
            parts.append(step.data)
            continue
        for begin, stop in step.kept:
            position = begin
            while position < stop:
                extent = _find(position, extents)
                if extent is None:
                    return None
                length = min(stop, extent.end) - position
                parts.append(Copy(extent.source, extent.offset + position - extent.start, length))
                position += length
    return parts


def _find(position: int, extents: Sequence[Sequence[_Extent]]) -> _Extent | None:
    for own in extents:
        at = bisect_right(own, position, key=_start) - 1
        if at >= 0 and position < own[at].end:
            return own[at]
    return None
