"""Whatever was placed, freed and moved: nothing overlaps, nothing leaves its region."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from modelcache_agent.decide.gpu.arena import (
    GENERAL,
    SMALL_POOL,
    NoPlace,
    Shape,
    choose_place,
    class_bytes,
    fragmentation,
    make_arena,
    place_block,
    remove_block,
    usable_regions,
)
from modelcache_agent.decide.gpu.compaction import (
    FRAGMENTATION_THRESHOLD,
    carry_out,
    compact_for,
    compact_idle,
)

SHAPE = Shape(1000, 1, small_bytes=8, small_pool_bytes=100, reserved={"tenant": 200})
OWNERS = st.sampled_from(["tenant", "other", "third"])
SIZES = st.one_of(st.integers(1, 12), st.integers(1, 300))
# An owner and a size are a block that comes, a number is one that goes.
HISTORIES = st.lists(
    st.one_of(st.tuples(OWNERS, SIZES), st.integers(0, 30)), min_size=1, max_size=60
)


def check(arena):
    for before, after in pairwise(arena.blocks):
        assert before.end <= after.offset
    for region in arena.regions:
        for block in arena.blocks_in(region):
            assert block.end <= region.end
            assert region in usable_regions(arena, block.owner, block.size_bytes)
        gaps = arena.gaps(region)
        blocks = sum(block.size_bytes for block in arena.blocks_in(region))
        assert sum(gap.size_bytes for gap in gaps) + blocks == region.end - region.begin
        assert 0 <= fragmentation(gaps) < 1
        for first, second in pairwise(gaps):
            assert first.offset + first.size_bytes < second.offset


def play(history, arena):
    """The arena after a history; a block for which there is no place does not come."""
    for event in history:
        if isinstance(event, int):
            if arena.blocks:
                arena = remove_block(arena, arena.blocks[event % len(arena.blocks)].offset)
            continue
        owner, size = event
        found = choose_place(arena, owner, size)
        if isinstance(found, NoPlace):
            regions = usable_regions(arena, owner, class_bytes(size, 1))
            gaps = [gap.size_bytes for region in regions for gap in arena.gaps(region)]
            assert found.largest_bytes == max(gaps, default=0) < found.needed_bytes
            continue
        assert size <= found.size_bytes <= max(size + 1, size * 1.25)
        arena = place_block(arena, owner, found)
        check(arena)
    return arena


@settings(max_examples=300)
@given(HISTORIES)
def test_blocks_lie_apart_and_where_they_may(history):
    arena = play(history, make_arena(SHAPE))
    for block in arena.blocks:
        arena = remove_block(arena, block.offset)
    assert arena == make_arena(SHAPE)


def check_moves(arena, moves, fixed):
    """Each move finds its target empty but for itself; what is fixed stays."""
    for move in moves:
        assert move.block in arena.blocks
        assert move.block.offset not in fixed
        assert move.to < move.block.offset
        arena = carry_out(arena, (move,))
        check(arena)
    return arena


@settings(max_examples=300)
@given(HISTORIES, st.sets(st.integers(0, 30)), OWNERS, SIZES)
def test_a_compaction_makes_the_room_that_it_was_made_for(history, pinned, owner, size):
    arena = play(history, make_arena(SHAPE))
    fixed = {block.offset for number, block in enumerate(arena.blocks) if number in pinned}
    plan = compact_for(arena, owner, size, fixed)
    if plan is not None:
        after = check_moves(arena, plan.moves, fixed)
        assert not isinstance(choose_place(after, owner, size), NoPlace)
        assert not isinstance(choose_place(arena, owner, size), NoPlace) or plan.moved_bytes > 0
    elif not fixed:
        found = choose_place(arena, owner, size)
        assert isinstance(found, NoPlace)
        assert not found.is_fragmented


@settings(max_examples=300)
@given(HISTORIES, st.sets(st.integers(0, 30)), st.sampled_from([SMALL_POOL, GENERAL, "tenant"]))
def test_putting_in_order_lowers_the_figure_and_ends(history, pinned, name):
    arena = play(history, make_arena(SHAPE))
    fixed = {block.offset for number, block in enumerate(arena.blocks) if number in pinned}
    region = arena.region(name)
    plan = compact_idle(arena, region, fixed)
    if plan is None:
        return
    before = fragmentation(arena.gaps(region))
    after = check_moves(arena, plan.moves, fixed)
    assert before > FRAGMENTATION_THRESHOLD
    assert fragmentation(after.gaps(region)) < before
    assert compact_idle(after, region, fixed) is None
    if not fixed:
        assert fragmentation(after.gaps(region)) == 0


@given(st.integers(1, 10**9), st.integers(1, 1000))
def test_classes_are_few_and_a_class_is_its_own_class(size, unit):
    found = class_bytes(size, unit)
    assert found >= size
    assert class_bytes(found, unit) == found
    assert found - size < unit + size / 4
