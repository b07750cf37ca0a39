"""The card's memory in one piece: whether what fits by the book also fits in one block."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from modelcache_agent.decide.gpu.arena import (
    GENERAL,
    Arena,
    NoPlace,
    Shape,
    choose_place,
    fragmentation,
    make_arena,
    place_block,
    remove_block,
)
from modelcache_agent.decide.gpu.compaction import (
    Compaction,
    carry_out,
    compact_for,
    compact_idle,
)

# Traces know no namespaces, so no region is anybody's.
_OWNER: Final = "trace"
# Rounding to units must not matter, however small the card.
_LEAST_UNITS: Final = 1024


@dataclass(frozen=True, slots=True)
class Placement:
    """The slab once a block has come: `blocks` by content, and bytes that were moved for it."""

    arena: Arena
    blocks: dict[str, int]
    moved_bytes: int


class Slab:
    """Blocks by the digest of their content; those that a pod maps cannot be moved.

    The agent's own arena decides who lies where, who moves, and when moving is worth it.
    """

    def __init__(self, size_bytes: int) -> None:
        unit = min(Shape(size_bytes).unit_bytes, max(1, size_bytes // _LEAST_UNITS))
        self._arena = make_arena(Shape(size_bytes, unit_bytes=unit))
        self._offsets: dict[str, int] = {}
        self.moved_bytes = 0

    @property
    def fragmentation(self) -> float:
        """From 0, all that is free lies in one piece, to 1."""
        return fragmentation(self._arena.gaps(self._arena.region(GENERAL)))

    def try_place(
        self, digest: str, size_bytes: int, leaving: Iterable[str], mapped: Collection[str]
    ) -> Placement | None:
        """What the slab would be with this block and without those that leave; None: no room."""
        arena, offsets = self._arena, dict(self._offsets)
        for gone in leaving:
            arena = remove_block(arena, offsets.pop(gone))
        place = choose_place(arena, _OWNER, size_bytes)
        moved = 0
        if isinstance(place, NoPlace):
            fixed = {offset for other, offset in offsets.items() if other in mapped}
            plan = compact_for(arena, _OWNER, size_bytes, fixed)
            if plan is None:
                return None
            arena, offsets = _move(arena, offsets, plan)
            moved, place = plan.moved_bytes, choose_place(arena, _OWNER, size_bytes)
        if isinstance(place, NoPlace):
            return None
        offsets[digest] = place.offset
        return Placement(place_block(arena, _OWNER, place), offsets, moved)

    def accept(self, placement: Placement) -> None:
        """The slab is this one from now on."""
        self._arena, self._offsets = placement.arena, placement.blocks
        self.moved_bytes += placement.moved_bytes

    def remove(self, digest: str) -> None:
        """The content is gone."""
        self._arena = remove_block(self._arena, self._offsets.pop(digest))

    def tidy(self, mapped: Collection[str]) -> None:
        """Put in order what is in pieces above the agent's threshold."""
        fixed = {offset for digest, offset in self._offsets.items() if digest in mapped}
        plan = compact_idle(self._arena, self._arena.region(GENERAL), fixed)
        if plan is not None:
            self._arena, self._offsets = _move(self._arena, self._offsets, plan)
            self.moved_bytes += plan.moved_bytes


def _move(arena: Arena, offsets: dict[str, int], plan: Compaction) -> tuple[Arena, dict[str, int]]:
    """Moves in their order; a block may go where another one was until then."""
    digests = {offset: digest for digest, offset in offsets.items()}
    for move in plan.moves:
        digests[move.to] = digests.pop(move.block.offset)
    return carry_out(arena, plan.moves), {digest: offset for offset, digest in digests.items()}
