"""A slab of memory in which every block is one piece: who lies where. Pure.

Blocks are rounded up to size classes, so that what one block leaves another one fills; blocks of
one class gather beside one another, and small ones in a pool of their own, so that they do not cut
the room for large ones into pieces. Regions can be reserved for owners. Nothing crosses a region.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

# No namespace, and so no owner, can have these names.
SMALL_POOL: Final = "/small"
GENERAL: Final = "/general"
# Between two powers of two there are four classes: at most a fifth of a block is rounding.
_STEPS: Final = 4


class ArenaError(Exception):
    """A caller's bug: a shape without room, or a block that is not there."""


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """A block of one owner. `size_bytes` is that of its class."""

    offset: int
    size_bytes: int
    owner: str

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """A contiguous run of free bytes within one region."""

    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """How a slab is divided, in bytes. `reserved` gives owners regions that are theirs alone.

    Blocks up to `small_bytes` go into a pool of `small_pool_bytes`, where that has room.
    """

    size_bytes: int
    unit_bytes: int = 1 << 20
    small_bytes: int = 0
    small_pool_bytes: int = 0
    reserved: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the slab: `name` is an owner's, SMALL_POOL or GENERAL."""

    name: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Place:
    """Room for a block."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NoPlace:
    """No region that the block may use has it in one piece; figures are of those regions."""

    needed_bytes: int
    free_bytes: int
    largest_bytes: int

    @property
    def is_fragmented(self) -> bool:
        """True if enough is free, but not in one piece."""
        return self.free_bytes >= self.needed_bytes


@dataclass(frozen=True, slots=True)
class Arena:
    """The slab. Blocks are sorted by offset."""

    shape: Shape
    regions: tuple[Region, ...]
    blocks: tuple[Block, ...] = ()

    def region(self, name: str) -> Region:
        """The region of that name. Raises ArenaError."""
        for region in self.regions:
            if region.name == name:
                return region
        raise ArenaError(f"the arena has no region {name!r}")

    def blocks_in(self, region: Region) -> tuple[Block, ...]:
        """Blocks of one region."""
        return tuple(b for b in self.blocks if region.begin <= b.offset < region.end)

    def gaps(self, region: Region) -> tuple[Gap, ...]:
        """What is free there, by offset."""
        found: list[Gap] = []
        cursor = region.begin
        for block in self.blocks_in(region):
            if block.offset > cursor:
                found.append(Gap(cursor, block.offset - cursor))
            cursor = block.end
        if cursor < region.end:
            found.append(Gap(cursor, region.end - cursor))
        return tuple(found)

    @property
    def used_bytes(self) -> int:
        """Bytes of all blocks, their rounding included."""
        return sum(block.size_bytes for block in self.blocks)


def make_arena(shape: Shape) -> Arena:
    """An empty slab. Raises ArenaError if its parts need more than it has."""
    regions: list[Region] = []
    cursor = 0
    for name, size in [(SMALL_POOL, shape.small_pool_bytes), *sorted(shape.reserved.items())]:
        if size % shape.unit_bytes or size < 0:
            raise ArenaError(f"region {name!r}: {size} bytes are no multiple of {shape.unit_bytes}")
        if size:
            regions.append(Region(name, cursor, cursor + size))
            cursor += size
    if cursor > shape.size_bytes:
        raise ArenaError(f"the regions need {cursor} bytes, the slab has {shape.size_bytes}")
    whole = shape.size_bytes - shape.size_bytes % shape.unit_bytes
    regions.append(Region(GENERAL, cursor, whole))
    return Arena(shape, tuple(regions))


def class_bytes(size_bytes: int, unit_bytes: int) -> int:
    """The size class of a block: bytes that it takes."""
    units = max(1, -(-size_bytes // unit_bytes))
    step = max(1, (1 << (units.bit_length() - 1)) // _STEPS)
    return -(-units // step) * step * unit_bytes


def fragmentation(gaps: tuple[Gap, ...]) -> float:
    """`1 - largest_contiguous_free / total_free`; 0 when nothing is free."""
    total = sum(gap.size_bytes for gap in gaps)
    return 1 - max(gap.size_bytes for gap in gaps) / total if total else 0.0


def choose_place(arena: Arena, owner: str, size_bytes: int) -> Place | NoPlace:
    """The best room for a block, in the owner's region, else the small pool, else the general one.

    A gap that fits exactly comes first, then one beside a block of the same class, then the one
    that leaves least.
    """
    wanted = class_bytes(size_bytes, arena.shape.unit_bytes)
    usable = usable_regions(arena, owner, wanted)
    for region in usable:
        offset = _choose_offset(arena, arena.gaps(region), wanted)
        if offset is not None:
            return Place(offset, wanted)
    free = [[gap.size_bytes for gap in arena.gaps(region)] for region in usable]
    largest = max((max(sizes, default=0) for sizes in free), default=0)
    return NoPlace(wanted, max(map(sum, free), default=0), largest)


def _choose_offset(arena: Arena, gaps: tuple[Gap, ...], wanted_bytes: int) -> int | None:
    """Where in the best of these gaps; None: none is large enough."""
    begins = {block.offset for block in arena.blocks if block.size_bytes == wanted_bytes}
    ends = {block.end for block in arena.blocks if block.size_bytes == wanted_bytes}

    def score(gap: Gap) -> tuple[bool, bool, int, int]:
        is_beside = gap.offset in ends or gap.end in begins
        return (gap.size_bytes != wanted_bytes, not is_beside, gap.size_bytes, gap.offset)

    fitting = (gap for gap in gaps if gap.size_bytes >= wanted_bytes)
    best = min(fitting, key=score, default=None)
    if best is None:
        return None
    is_at_the_end = best.end in begins and best.offset not in ends
    return best.end - wanted_bytes if is_at_the_end else best.offset


def usable_regions(arena: Arena, owner: str, wanted_bytes: int) -> tuple[Region, ...]:
    """Regions that a block of this owner and class may lie in, the best first."""
    names = [owner]
    if wanted_bytes <= arena.shape.small_bytes:
        names.append(SMALL_POOL)
    names.append(GENERAL)
    return tuple(region for name in names for region in arena.regions if region.name == name)


def place_block(arena: Arena, owner: str, place: Place) -> Arena:
    """The slab with this block. Raises ArenaError if something lies there."""
    block = Block(place.offset, place.size_bytes, owner)
    if any(other.offset < block.end and block.offset < other.end for other in arena.blocks):
        raise ArenaError(f"something lies at {place.offset} already")
    return replace(arena, blocks=tuple(sorted((*arena.blocks, block))))


def remove_block(arena: Arena, offset: int) -> Arena:
    """The slab without the block that begins there. Raises ArenaError."""
    left = tuple(block for block in arena.blocks if block.offset != offset)
    if len(left) == len(arena.blocks):
        raise ArenaError(f"no block begins at {offset}")
    return replace(arena, blocks=left)
