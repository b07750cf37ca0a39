"""The slab's figures and choices, by example."""

from __future__ import annotations

import pytest

from modelcache_agent.decide.gpu.arena import (
    GENERAL,
    ArenaError,
    Gap,
    NoPlace,
    Place,
    Shape,
    choose_place,
    fragmentation,
    make_arena,
    place_block,
    remove_block,
)
from modelcache_agent.decide.gpu.compaction import compact_for, compact_idle


@pytest.mark.parametrize(
    ("gaps", "figure"),
    [
        pytest.param([], 0, id="nothing is free"),
        pytest.param([10], 0, id="one piece"),
        pytest.param([5, 5], 0.5, id="two halves"),
        pytest.param([1, 8, 1], 0.2, id="most of it in one piece"),
    ],
)
def test_the_figure_of_fragmentation(gaps, figure):
    assert fragmentation(tuple(Gap(100 * n, size) for n, size in enumerate(gaps))) == (
        pytest.approx(figure)
    )


def fill(arena, *blocks):
    for owner, size in blocks:
        arena = place_block(arena, owner, choose_place(arena, owner, size))
    return arena


def test_small_blocks_leave_the_room_of_large_ones_in_one_piece():
    arena = make_arena(Shape(100, 1, small_bytes=4, small_pool_bytes=20))
    arena = fill(arena, *[("a", 4)] * 5)
    assert arena.gaps(arena.region(GENERAL)) == (Gap(20, 80),)
    assert choose_place(arena, "a", 4).offset == 20, "a full pool is no reason to refuse"


def test_a_reserved_region_is_its_owners_alone():
    arena = make_arena(Shape(100, 1, reserved={"tenant": 40}))
    assert choose_place(arena, "tenant", 30) == Place(0, 32)
    assert choose_place(arena, "other", 30) == Place(40, 32)
    assert isinstance(choose_place(arena, "other", 64), NoPlace)


def test_no_namespace_can_name_the_common_regions():
    arena = make_arena(Shape(100, 1, small_bytes=1, small_pool_bytes=20))
    assert (
        choose_place(arena, "small", 10).offset == choose_place(arena, "general", 10).offset == 20
    )


def test_blocks_of_one_class_gather():
    arena = fill(make_arena(Shape(64, 1)), ("a", 8), ("b", 16), ("c", 8), ("d", 16))
    arena = remove_block(arena, 8)  # room for 16 between two of 8
    arena = remove_block(arena, 32)
    assert choose_place(arena, "e", 16) == Place(8, 16)
    assert choose_place(arena, "e", 8) == Place(8, 8)


def test_room_in_pieces_is_told_from_no_room_and_mended_by_the_fewest_bytes():
    arena = fill(make_arena(Shape(32, 1)), *[("a", 4)] * 8)
    for offset in (4, 12, 20):
        arena = remove_block(arena, offset)
    found = choose_place(arena, "b", 8)
    assert (found.free_bytes, found.largest_bytes, found.is_fragmented) == (12, 4, True)
    plan = compact_for(arena, "b", 8, fixed=())
    assert [(move.block.offset, move.to) for move in plan.moves] == [(8, 4)]
    assert not choose_place(arena, "b", 16).is_fragmented
    assert compact_for(arena, "b", 16, fixed=()) is None
    assert compact_for(arena, "b", 8, fixed=(8, 16, 24)) is None


def test_a_region_in_order_is_left_alone():
    arena = remove_block(fill(make_arena(Shape(32, 1)), *[("a", 4)] * 8), 28)
    assert compact_idle(arena, arena.region(GENERAL), fixed=()) is None


def test_shapes_and_blocks_that_cannot_be_are_refused():
    with pytest.raises(ArenaError, match="120 bytes, the slab has 100"):
        make_arena(Shape(100, 1, reserved={"a": 60, "b": 60}))
    with pytest.raises(ArenaError, match="no multiple of 4"):
        make_arena(Shape(100, 4, reserved={"a": 3}))
    arena = make_arena(Shape(100, 1))
    with pytest.raises(ArenaError, match="no block begins at 3"):
        remove_block(arena, 3)
    with pytest.raises(ArenaError, match="already"):
        place_block(place_block(arena, "a", Place(0, 8)), "b", Place(4, 8))
    with pytest.raises(ArenaError, match="no region"):
        arena.region("nowhere")
