"""Where a canary is held beside the stable version, and in which tier it lacks room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import GIB, make_book, make_books, make_cache, make_entry, make_entry_spec
from modelcache_api.names import Priority, Reason, Tier
from modelcache_api.v1alpha1.rollout import CanarySpec, RolloutSpec
from modelcache_operator.decide.canary import CanaryWish, place_canary
from modelcache_operator.decide.world import Uid


def wish(*stable, tier=Tier.HOST, residency="Full", **fields):
    spec = make_cache(copies=len(stable), tier=tier).spec.model_copy(
        update={
            "canary": CanarySpec(model_version="m2", weight=5),
            "rollout": RolloutSpec(residency=residency),
        }
    )
    return CanaryWish(
        cache=Uid("cache"),
        spec=spec,
        version=Uid("v2"),
        size_bytes=GIB,
        stable_version=Uid("v1"),
        stable=frozenset(stable),
        **fields,
    )


def holder(name, *, host=None, more=None, **fields):
    """A node with the stable version, in memory where it has some."""
    sizes = {"v1": GIB, **(more or {})}
    return make_book(
        name, host=host, entries=[make_entry("v1")], sizes=sizes, in_host=sizes, **fields
    )


def test_room_in_memory_is_judged_as_room_on_the_disk_and_told_with_its_own_arithmetic():
    books = make_books(holder("n1", host=2 * GIB), holder("n2", host=2 * GIB, more={"x": GIB // 2}))
    plan = place_canary(wish("n1", "n2"), books)
    assert plan.nodes == frozenset()
    assert plan.copies.shortage.reason is Reason.CANARY_DOES_NOT_FIT
    for words in (
        "needs 1Gi beside the stable version in tier Host on each of 2 nodes, 2Gi in all",
        "1 of them lack room, the fullest is n2: 512Mi free, 1.5Gi booked of 2Gi",
        "free the Host tier, lower spec.tier, or set rollout.residency to Proportional",
    ):
        assert words in plan.copies.shortage.message


def test_the_disk_is_told_first_where_both_lack_room():
    books = make_books(
        holder("n1", host=GIB), holder("n2", host=4 * GIB, capacity=2 * GIB, more={"x": GIB})
    )
    shortage = place_canary(wish("n1", "n2"), books).copies.shortage
    assert "the fullest is n2: 0 free" in shortage.message
    assert "tier Host" not in shortage.message


def test_what_has_a_higher_priority_makes_no_room_in_memory_either():
    entry = make_entry("v1"), make_entry("x")
    sizes = {"v1": GIB, "x": GIB}
    book = make_book("n1", host=2 * GIB, entries=entry, sizes=sizes, in_host=sizes)
    book = replace(book, evictable=frozenset({Uid("x")}))
    assert place_canary(wish("n1"), make_books(book)).copies.shortage is None
    high = replace(book, priorities={Uid("x"): Priority.HIGH})
    shortage = place_canary(wish("n1"), make_books(high)).copies.shortage
    assert "tier Host" in shortage.message


def test_C54_under_disk_pressure_on_one_node_the_canary_is_fetched_nowhere():
    pressed = replace(holder("n2"), pressure="92 % are used")
    plan = place_canary(wish("n1", "n2", tier=Tier.DISK), make_books(holder("n1"), pressed))
    assert (plan.nodes, plan.copies.shortage.reason) == (frozenset(), Reason.DISK_PRESSURE)
    assert "first n2" in plan.copies.shortage.message
    kept = wish("n1", "n2", tier=Tier.DISK, present=frozenset({"n2"}))
    plan = place_canary(kept, make_books(holder("n1"), pressed))
    assert (plan.nodes, plan.copies.shortage) == ({"n1", "n2"}, None)


@pytest.mark.parametrize(
    ("books", "fields"),
    [
        pytest.param([holder("n1", host=2 * GIB)], {}, id="there is room for both"),
        pytest.param([holder("n1", host=GIB)], {"tier": Tier.DISK}, id="memory is not asked for"),
        pytest.param(
            [holder("n1")], {"slower": frozenset({"n1"})}, id="the node keeps both on its disk"
        ),
        pytest.param(
            [holder("n1", host=GIB)],
            {"present": frozenset({"n1"})},
            id="what was promised stays promised",
        ),
        pytest.param(
            [holder("n1", host=2 * GIB, more={"v2": GIB})], {}, id="another ModelCache has it there"
        ),
    ],
)
def test_it_comes_beside_the_stable_version_where(books, fields):
    plan = place_canary(wish("n1", **fields), make_books(*books))
    assert (plan.nodes, plan.copies.shortage) == ({"n1"}, None)


@pytest.mark.parametrize("full", ["n1", "n2", "n3"])
def test_with_proportional_residency_a_node_with_room_takes_it_alone(full):
    names = ("n1", "n2", "n3")
    books = make_books(*(holder(n, host=GIB if n == full else 2 * GIB) for n in names))
    plan = place_canary(wish(*names, residency="Proportional"), books)
    assert (len(plan.nodes), plan.copies.shortage) == (1, None)
    assert full not in plan.nodes


@pytest.mark.parametrize("where", [{"host": 2 * GIB}, {"host": 9 * GIB, "capacity": 2 * GIB}])
@pytest.mark.parametrize(
    ("priority", "is_placed"), [(Priority.HIGH, False), (Priority.NORMAL, True)]
)
def test_it_counts_on_no_room_of_a_higher_priority_in_any_tier(where, priority, is_placed):
    evictable = [make_entry_spec("x", evictable=True)]
    book = holder("n1", more={"x": GIB}, wanted=evictable, priorities={"x": priority}, **where)
    assert bool(place_canary(wish("n1"), make_books(book)).nodes) is is_placed
