"""A file of which only a part is taken: literal bytes, then ranges of the source's file. Pure.

The operator makes a cut once, from the header of a safetensors file. To everybody else the result
is a file like any other, with a size, a digest and pieces of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

# Of one version: bounds the stored manifest, the grants and the memory of agents.
MAX_LITERAL_BYTES: Final = 8 * 1024 * 1024
MAX_RANGES: Final = 50_000

Range = tuple[int, int]
"""Bytes [start, end)."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the file is put together: `literal`, then the `ranges` of the whole file, in order.

    `whole_bytes` is the size of the source's file; `whole_sha256` is what the source states of it,
    which says nothing of a part and is kept for whoever signs.
    """

    whole_bytes: int
    literal: bytes
    ranges: tuple[Range, ...] = ()
    whole_sha256: str | None = None
    starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Where each range begins in the file that comes of it, and where that ends."""

    def __post_init__(self) -> None:
        lengths = (end - start for start, end in self.ranges)
        starts = tuple(accumulate(lengths, initial=len(self.literal)))
        object.__setattr__(self, "starts", starts)

    @property
    def size_bytes(self) -> int:
        """Of the file that comes of it."""
        return self.starts[-1]

    @property
    def digest(self) -> str:
        """Hex; what tells one cut of a file from another."""
        text = json.dumps([self.whole_bytes, self.ranges], separators=(",", ":"))
        return hashlib.sha256(text.encode() + b"\n" + self.literal).hexdigest()


def describe_cut_fault(cut: Cut, size_bytes: int) -> str | None:
    """Why the cut is not one of a file that comes to `size_bytes`, or None."""
    if any(not 0 <= start < end <= cut.whole_bytes for start, end in cut.ranges):
        return "it has a range outside of the source's file"
    if cut.size_bytes != size_bytes:
        return f"it comes to {cut.size_bytes} bytes, not {size_bytes}"
    return None


def join_ranges(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """The same bytes in the same order, with what follows immediately joined; no empty ones."""
    joined: list[Range] = []
    for start, end in ranges:
        if start == end:
            continue
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(joined)
