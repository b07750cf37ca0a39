"""Where a content's files go in device memory, and into how many extents it is cut. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from modelcache_api.device_layout import MOST_EXTENTS, PlacedFile

MOST_EXTENT_BYTES: Final = 1 << 30
"""Larger ones are harder to find on a card that others use, smaller ones cost descriptors."""
# Kernels read whole vectors: what begins here suits all of them.
_ALIGNMENT: Final = 256


@dataclass(frozen=True, slots=True)
class FileShape:
    """A file to be placed. `data_begin` is where its tensors begin, behind the header, in bytes."""

    path: str
    size_bytes: int
    data_begin: int = 0


@dataclass(frozen=True, slots=True)
class ExtentRules:
    """What a device allocates: multiples of `granularity_bytes`, `most_bytes` at once.

    `most_bytes` None: a content is one piece, because only that can be exported from a slab.
    """

    granularity_bytes: int
    most_bytes: int | None = MOST_EXTENT_BYTES


def round_up(size_bytes: int, multiple: int) -> int:
    """The next multiple, not below."""
    return -(-size_bytes // multiple) * multiple


def place_files(files: Iterable[FileShape]) -> tuple[PlacedFile, ...]:
    """One behind the other, so that the tensors of each begin aligned."""
    placed: list[PlacedFile] = []
    end = 0
    for file in files:
        offset = round_up(end + file.data_begin, _ALIGNMENT) - file.data_begin
        placed.append(PlacedFile(file.path, offset, file.size_bytes))
        end = offset + file.size_bytes
    return tuple(placed)


def cut_extents(size_bytes: int, rules: ExtentRules) -> tuple[int, ...]:
    """Sizes of extents of about equal size that hold so many bytes together.

    Equal ones, because a small last one would be a hole that nothing fits into later.
    """
    if size_bytes <= 0:
        return ()
    count = 1
    if rules.most_bytes is not None:
        count = min(-(-size_bytes // rules.most_bytes), MOST_EXTENTS)
    each = round_up(-(-size_bytes // count), rules.granularity_bytes)
    sizes: list[int] = []
    left = size_bytes
    while left > 0:
        sizes.append(min(each, round_up(left, rules.granularity_bytes)))
        left -= each
    return tuple(sizes)


@dataclass(frozen=True, slots=True)
class Span:
    """A run of bytes within one extent."""

    extent: int
    offset: int
    length: int


def find_spans(extents: tuple[int, ...], offset: int, length: int) -> tuple[Span, ...]:
    """Where a run of the content's bytes lies; it may cross from one extent into the next."""
    spans: list[Span] = []
    begin = 0
    for number, size in enumerate(extents):
        first, last = max(offset, begin), min(offset + length, begin + size)
        if first < last:
            spans.append(Span(number, first - begin, last - first))
        begin += size
    return tuple(spans)
