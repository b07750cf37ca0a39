"""Which blocks of a slab are moved to make one piece of what is free. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from modelcache_agent.decide.gpu.arena import (
    Arena,
    Block,
    Region,
    class_bytes,
    fragmentation,
    usable_regions,
)

FRAGMENTATION_THRESHOLD: Final = 0.3
"""Above it a region is put in order although nobody waits for room there."""


@dataclass(frozen=True, slots=True)
class Move:
    """One block's way. It may overlap itself; what else lies at `to` has moved before."""

    block: Block
    to: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """Moves in the order in which they are carried out, and why."""

    moves: tuple[Move, ...]
    why: str

    @property
    def moved_bytes(self) -> int:
        """What it costs."""
        return sum(move.block.size_bytes for move in self.moves)


def compact_for(
    arena: Arena, owner: str, size_bytes: int, fixed: Collection[int]
) -> Compaction | None:
    """The cheapest compaction of one region that gives this block room; None: there is none.

    Args:
        arena: the slab.
        owner: whose block it is.
        size_bytes: what it needs.
        fixed: offsets of blocks that cannot move, because somebody maps them.
    """
    wanted = class_bytes(size_bytes, arena.shape.unit_bytes)
    plans: list[Compaction] = []
    for region in usable_regions(arena, owner, wanted):
        if sum(gap.size_bytes for gap in arena.gaps(region)) < wanted:
            continue
        moves = _slide(arena, region, fixed, wanted)
        if moves is not None:
            plans.append(Compaction(moves, f"{wanted} bytes are needed in one piece"))
    return min(plans, key=lambda plan: plan.moved_bytes, default=None)


def compact_idle(
    arena: Arena, region: Region, fixed: Collection[int], threshold: float = FRAGMENTATION_THRESHOLD
) -> Compaction | None:
    """The compaction of a region that is in pieces above the threshold, if moving mends it."""
    before = fragmentation(arena.gaps(region))
    if before <= threshold:
        return None
    moves = _slide(arena, region, fixed, None) or ()
    after = fragmentation(carry_out(arena, moves).gaps(region))
    if after >= before:
        return None
    return Compaction(moves, f"fragmentation {before:.2f} is above {threshold:.2f}")


def carry_out(arena: Arena, moves: Collection[Move]) -> Arena:
    """The slab after these moves."""
    blocks = set(arena.blocks)
    for move in moves:
        blocks.remove(move.block)
        blocks.add(replace(move.block, offset=move.to))
    return replace(arena, blocks=tuple(sorted(blocks)))


def _slide(
    arena: Arena, region: Region, fixed: Collection[int], wanted_bytes: int | None
) -> tuple[Move, ...] | None:
    """Blocks pushed towards the region's begin, until a gap of that size appears, or all of them.

    None: all are pushed and there is no such gap. Blocks never jump over a fixed one, so each goes
    to where nothing lies but itself.
    """
    moves: list[Move] = []
    cursor = region.begin
    for block in arena.blocks_in(region):
        if wanted_bytes is not None and block.offset - cursor >= wanted_bytes:
            return tuple(moves)
        if block.offset in fixed:
            cursor = block.end
            continue
        if block.offset > cursor:
            moves.append(Move(block, cursor))
        cursor += block.size_bytes
    if wanted_bytes is not None and region.end - cursor < wanted_bytes:
        return None
    return tuple(moves)
