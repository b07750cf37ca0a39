"""Which part of a tensor is wanted, and which bytes of its file that is. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from modelcache.errors import SelectionError
from modelcache.header import TensorInfo
from modelcache_api.keys import matches_tensor
from modelcache_api.safetensors_format import DTYPE_BITS

FEWEST_READERS: Final = 2
MOST_READERS: Final = 4
"""More than keep a copy to a device going gain nothing."""
Slice = tuple[int, int, int] | slice | tuple[slice, ...]
"""`(dimension, start, stop)`, or as torch takes it: `slice(0, 4)`, `(slice(None), slice(4, 8))`."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of one tensor: from `starts` on so much as `shape`, in each dimension."""

    info: TensorInfo
    starts: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the part. Types of less than a byte have whole tensors alone."""
        return math.prod(self.shape) * DTYPE_BITS[self.info.dtype] // 8

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self.shape == self.info.shape

    @property
    def index(self) -> tuple[slice, ...]:
        """The part, as torch and numpy take it."""
        pairs = zip(self.starts, self.shape, strict=True)
        return tuple(slice(start, start + size) for start, size in pairs)


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of a file that lie one behind the other in a tensor.

    `run_bytes` from `offset` on, and again as often as `counts` at the distances `strides_bytes`,
    the outermost first. They belong at `target_offset` of the tensor with the number `target`.
    """

    file: Path
    target: int
    target_offset: int
    offset: int
    run_bytes: int
    counts: tuple[int, ...] = ()
    strides_bytes: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all runs."""
        return self.run_bytes * math.prod(self.counts)

    @property
    def span_bytes(self) -> int:
        """From the first byte to behind the last one, what lies between the runs included."""
        pairs = zip(self.counts, self.strides_bytes, strict=True)
        return sum((count - 1) * stride for count, stride in pairs) + self.run_bytes

    def runs(self) -> Iterator[int]:
        """Where each run begins in the file, in the tensor's order."""
        yield from _walk(self.offset, self.counts, self.strides_bytes)


def make_cut(info: TensorInfo, wanted: Slice | None) -> Cut:
    """The part that is asked for; None: all of it.

    Bounds count from the end if they are negative, and are never moved to fit.

    Raises:
        SelectionError: the tensor has no such part.
    """
    if wanted is None:
        return Cut(info, (0,) * len(info.shape), info.shape)
    ranges = [(0, size) for size in info.shape]
    for dimension, part in _by_dimension(info, wanted).items():
        ranges[dimension] = _bounds(info, dimension, part)
    starts = tuple(start for start, _ in ranges)
    return Cut(info, starts, tuple(stop - start for start, stop in ranges))


def make_cuts(
    known: Collection[str],
    find: Callable[[str], TensorInfo],
    names: Iterable[str] | None,
    slices: Mapping[str, Slice] | None,
) -> list[Cut]:
    """The parts that are asked for, each tensor once; `names` of None: all that are known.

    Raises:
        SelectionError: there is no such tensor, or no such part of it.
        BadFileError: see `find`.
    """
    names = known if names is None else (names,) if isinstance(names, str) else names
    chosen, slices = dict.fromkeys(names), slices or {}
    for name in (*chosen, *slices):
        if name not in known:
            raise SelectionError(f"no tensor is named {name!r}: list(weights) has them all")
        if name not in chosen:
            raise SelectionError(
                f"there is a slice for tensor {name!r} of shape {find(name).shape}, which is not "
                "among the names: add it there"
            )
    return [make_cut(find(name), slices.get(name)) for name in chosen]


def split_tensors(
    infos: Sequence[TensorInfo], dimensions: Mapping[str, int], rank: int, ranks: int
) -> dict[str, Slice]:
    """The slices of one rank: `dimensions` says by glob of the name along which one to cut.

    The first glob that matches counts; tensors that none matches stay whole, and are not named.

    Raises:
        SelectionError: a glob matches nothing, or a tensor cannot be cut equally so.
        ValueError: there is no such rank.
    """
    if not 0 <= rank < ranks:
        raise ValueError(f"rank={rank}: of {ranks} ranks the last one is {ranks - 1}")
    found: dict[str, Slice] = {}
    unused = set(dimensions)
    for info in infos:
        globs = [glob for glob in dimensions if matches_tensor(info.name, glob)]
        unused.difference_update(globs)
        if globs:
            dimension = _find_dimension(info, dimensions[globs[0]])
            each, rest = divmod(info.shape[dimension], ranks)
            if rest:
                raise SelectionError(
                    f"tensor {info.name!r} of shape {info.shape} cannot be cut into {ranks} equal "
                    f"parts along dimension {dimension}: give its slice by hand"
                )
            found[info.name] = (dimension, rank * each, (rank + 1) * each)
    if unused:
        raise SelectionError(
            f"{', '.join(map(repr, sorted(unused)))}: no tensor's name matches; "
            "list(weights) has them all"
        )
    return found


def make_blocks(cut: Cut, target: int, most_bytes: int) -> Iterator[Block]:
    """The part's bytes in the file, in its order, in blocks of at most so many bytes."""
    strides = [DTYPE_BITS[cut.info.dtype] // 8] * len(cut.shape)
    for dimension in range(len(strides) - 2, -1, -1):
        strides[dimension] = strides[dimension + 1] * cut.info.shape[dimension + 1]
    offset = cut.info.offset + sum(
        start * stride for start, stride in zip(cut.starts, strides, strict=True)
    )
    if cut.size_bytes:
        counts, run = _join(cut, strides)
        block = Block(cut.info.file, target, 0, offset, run, counts, tuple(strides[: len(counts)]))
        yield from _divide(block, most_bytes)


def make_fills(cuts: Sequence[Cut], buffer_bytes: int) -> Iterator[tuple[tuple[Block, int], ...]]:
    """What goes into one buffer after the other: blocks, each with its place in the buffer."""
    fill: list[tuple[Block, int]] = []
    used = 0
    for number, cut in enumerate(cuts):
        for block in make_blocks(cut, number, buffer_bytes):
            if used + block.size_bytes > buffer_bytes:
                yield tuple(fill)
                fill, used = [], 0
            fill.append((block, used))
            used += block.size_bytes
    if fill:
        yield tuple(fill)


def _join(cut: Cut, strides: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """How often each outer dimension repeats, and how many bytes lie together in the inner ones."""
    counts, run = list(cut.shape), DTYPE_BITS[cut.info.dtype] // 8
    while counts and strides[len(counts) - 1] == run:
        run *= counts.pop()
    return tuple(counts), run


def _divide(block: Block, most_bytes: int) -> Iterator[Block]:
    """The same bytes in blocks that are small enough."""
    if block.size_bytes <= most_bytes:
        yield block
    elif not block.counts:
        for begin in range(0, block.run_bytes, most_bytes):
            length = min(most_bytes, block.run_bytes - begin)
            yield replace(_advance(block, begin, begin), run_bytes=length)
    else:
        (count, *counts), (stride, *strides) = block.counts, block.strides_bytes
        row_bytes = block.size_bytes // count
        rows = most_bytes // row_bytes
        for row in range(0, count, rows or 1):
            part = _advance(block, row * stride, row * row_bytes)
            if rows:
                yield replace(part, counts=(min(rows, count - row), *counts))
            else:
                inner = replace(part, counts=tuple(counts), strides_bytes=tuple(strides))
                yield from _divide(inner, most_bytes)


def _advance(block: Block, in_file: int, in_target: int) -> Block:
    return replace(
        block, offset=block.offset + in_file, target_offset=block.target_offset + in_target
    )


def _walk(offset: int, counts: Sequence[int], strides: Sequence[int]) -> Iterator[int]:
    if not counts:
        yield offset
        return
    for number in range(counts[0]):
        yield from _walk(offset + number * strides[0], counts[1:], strides[1:])


def _by_dimension(info: TensorInfo, wanted: Slice) -> dict[int, slice]:
    """What is said of each dimension; the others are whole."""
    if isinstance(wanted, slice):
        wanted = (wanted,)
    if isinstance(wanted, tuple) and all(isinstance(part, slice) for part in wanted):
        parts = {number: part for number, part in enumerate(wanted) if isinstance(part, slice)}
        if len(parts) > len(info.shape):
            raise SelectionError(
                f"tensor {info.name!r} of shape {info.shape} has no {len(parts)} dimensions: give "
                f"at most {len(info.shape)} slices"
            )
        return parts
    if isinstance(wanted, tuple) and [type(part) for part in wanted] == [int, int, int]:
        dimension, start, stop = (part for part in wanted if isinstance(part, int))
        return {_find_dimension(info, dimension): slice(start, stop)}
    raise SelectionError(
        f"{wanted!r} is no slice of tensor {info.name!r} of shape {info.shape}: give (dimension, "
        "start, stop), or slices as torch takes them"
    )


def _find_dimension(info: TensorInfo, dimension: int) -> int:
    count = len(info.shape)
    if not -count <= dimension < count:
        raise SelectionError(
            f"tensor {info.name!r} of shape {info.shape} has no dimension {dimension}: "
            f"it has {count}, counted from 0"
        )
    return dimension % count


def _bounds(info: TensorInfo, dimension: int, part: slice) -> tuple[int, int]:
    size = info.shape[dimension]
    start = 0 if part.start is None else part.start
    stop = size if part.stop is None else part.stop
    shown = f"{start}:{stop}" if part.step is None else f"{start}:{stop}:{part.step}"
    start, stop = (bound + size if bound < 0 else bound for bound in (start, stop))
    if part.step not in {None, 1} or not 0 <= start <= stop <= size:
        raise SelectionError(
            f"tensor {info.name!r} of shape {info.shape} has no slice {shown} in dimension "
            f"{dimension}: bounds go from 0 to {size}, in steps of 1"
        )
    return start, stop
