"""Placement of ModelCaches that want a faster tier than the disk."""

from __future__ import annotations

import pytest

from builders import (
    GIB,
    make_book,
    make_books,
    make_demand,
    make_entry,
    make_entry_spec,
    make_node,
)
from modelcache_api.names import EntryState, Reason, Tier
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.placement import place
from modelcache_operator.decide.stuck import is_stuck
from modelcache_operator.decide.world import Uid

CACHE = Uid("cache-1")
MODEL = 4 * GIB


def want(copies=1, size=MODEL, **placement):
    return make_demand(size, tier=Tier.HOST, copies=copies, **placement)


def held(name, *, host=8 * GIB, tier=Tier.DISK, state=EntryState.CACHED, **fields):
    """A node where the version is placed and, unless it says otherwise, verified."""
    entries = [make_entry("v1", state, tier=tier if state is EntryState.CACHED else None)]
    sizes = {"v1": MODEL} | fields.pop("sizes", {})
    return make_book(name, host=host, entries=entries, sizes=sizes, **fields)


def test_new_copies_come_to_nodes_with_room_in_the_tier_and_to_no_others():
    books = make_books(
        make_book("without"),
        make_book("off", host=0),
        make_book("small", host=MODEL - 1),
        make_book("full", host=6 * GIB, sizes={"x": 3 * GIB}, in_host=["x"]),
        make_book("fit", host=MODEL),
    )
    assert place(CACHE, want(), (), books).nodes == {"fit"}
    plan = place(CACHE, want(copies=5), (), books)
    assert plan.nodes == plan.live == {"fit"}


@pytest.mark.parametrize(
    ("book", "reason", "words"),
    [
        pytest.param(
            make_book("n1", host=0),
            Reason.NO_ELIGIBLE_NODE,
            ["1 without a Host tier", "needed 4Gi in tier Host", "set host.capacity"],
            id="a node whose tier is off or unfit",
        ),
        pytest.param(
            make_book("n1", host=3 * GIB),
            Reason.NEVER_FITS,
            ["1 with a Host tier too small for it", "3Gi free there", "booked of 3Gi"],
            id="a tier that is too small",
        ),
        pytest.param(
            make_book("n1", host=6 * GIB, sizes={"x": 3 * GIB}, in_host=["x"]),
            Reason.INSUFFICIENT_SPACE,
            ["1 without room in the Host tier", "3Gi free there, 3Gi booked of 6Gi"],
            id="a tier that is promised to others",
        ),
        pytest.param(
            make_book("n1", capacity=2 * GIB, host=0),
            Reason.NO_ELIGIBLE_NODE,
            ["without a Host tier"],
            id="a disk that is too small besides",
        ),
        pytest.param(
            make_book("n1", capacity=2 * GIB, host=8 * GIB),
            Reason.NEVER_FITS,
            ["1 too small for it", "booked of 2Gi", "leave files out"],
            id="the disk below is too small",
        ),
        pytest.param(
            make_book("n1", capacity=None),
            Reason.WAITING,
            ["has not reported"],
            id="an agent that has not reported",
        ),
    ],
)
def test_C36_a_shortage_of_the_tier_is_told_with_its_arithmetic_and_cure(book, reason, words):
    shortage = place(CACHE, want(), (), make_books(book)).shortage
    assert shortage.reason is reason
    assert [word for word in words if word not in shortage.message] == []


def test_a_version_that_another_model_cache_holds_in_the_tier_needs_no_more_room():
    books = make_books(make_book("n1", host=MODEL, sizes={"v1": MODEL}, in_host=["v1"]))
    assert place(CACHE, want(), (), books).nodes == {"n1"}


def test_copies_that_may_be_evicted_give_way_in_the_tier_too():
    evictable = [make_entry_spec("x", evictable=True)]
    full = {"host": 6 * GIB, "sizes": {"x": 3 * GIB}, "in_host": ["x"]}
    books = make_books(make_book("n1", wanted=evictable, **full))
    assert place(CACHE, want(), (), books).nodes == {"n1"}
    books = make_books(make_book("n1", wanted=evictable, **full), make_book("n2", host=MODEL))
    assert place(CACHE, want(), (), books).nodes == {"n2"}


def test_the_tier_least_booked_is_preferred_however_full_the_disks_are():
    books = make_books(
        make_book("n1", host=20 * GIB, sizes={"x": 8 * GIB}, in_host=["x"]),
        make_book("n2", host=20 * GIB, sizes={"x": 90 * GIB}),
    )
    assert place(CACHE, want(), (), books).nodes == {"n2"}


def test_what_is_promised_in_the_tier_stays_although_a_better_node_appears():
    n1 = held("n1", host=5 * GIB, sizes={"x": 3 * GIB}, in_host=["v1", "x"])
    plan = place(CACHE, want(), ["n1"], make_books(n1, make_book("n2", host=50 * GIB)))
    assert (plan.nodes, plan.slower, plan.shortage) == ({"n1"}, frozenset(), None)


def test_a_copy_on_disk_is_promoted_where_it_is_if_its_node_has_room():
    books = make_books(held("n1"), make_book("n2", host=50 * GIB))
    plan = place(CACHE, want(), ["n1"], books)
    assert (plan.nodes, plan.slower) == ({"n1"}, frozenset())


def test_verified_copies_stay_on_disk_until_others_are_verified():
    disks = [held("n1", host=0), held("n2", host=0)]
    fresh = [make_book(name, host=MODEL) for name in ("n3", "n4")]
    plan = place(CACHE, want(2), ["n1", "n2"], make_books(*disks, *fresh))
    assert plan.nodes == plan.live == {"n1", "n2", "n3", "n4"}
    assert plan.slower == {"n1", "n2"}
    assert plan.shortage is None
    arrived = [held("n3", in_host=["v1"]), make_book("n4", host=MODEL, sizes={"v1": MODEL})]
    plan = place(CACHE, want(2), plan.nodes, make_books(*disks, *arrived))
    assert {"n3", "n4"} < plan.nodes
    assert len(plan.slower) == 1
    arrived = [held(name, in_host=["v1"]) for name in ("n3", "n4")]
    plan = place(CACHE, want(2), plan.nodes, make_books(*disks, *arrived))
    assert (plan.nodes, plan.slower) == ({"n3", "n4"}, frozenset())


def test_where_no_node_has_the_tier_nothing_is_lost_and_the_lack_is_told():
    plan = place(CACHE, want(2), ["n1", "n2"], make_books(held("n1"), held("n2", host=0)))
    assert plan.nodes == plan.live == {"n1", "n2"}
    assert plan.slower == {"n2"}
    assert plan.shortage.reason is Reason.NO_ELIGIBLE_NODE
    assert "1 of 2 copies have a node in tier Host" in plan.shortage.message


def test_an_unverified_copy_on_a_node_without_the_tier_goes_as_soon_as_another_has_a_node():
    waiting = held("n1", host=0, state=EntryState.DOWNLOADING)
    plan = place(CACHE, want(), ["n1"], make_books(waiting))
    assert plan.nodes == {"n1"}
    plan = place(CACHE, want(), ["n1"], make_books(waiting, make_book("n2", host=MODEL)))
    assert plan.nodes == {"n2"}


def test_an_evicted_copy_is_placed_nowhere_else_though_the_tier_is_full():
    evicted = held(
        "n1", host=6 * GIB, state=EntryState.EVICTED, sizes={"x": 6 * GIB}, in_host=["v1", "x"]
    )
    plan = place(CACHE, want(), ["n1"], make_books(evicted, make_book("n2", host=MODEL)))
    assert plan.nodes == {"n1"}


def test_a_lost_node_keeps_its_entry_as_it_is():
    books = make_books(held("n1", host=0, liveness=Liveness.LOST), make_book("n2", host=MODEL))
    plan = place(CACHE, want(), ["n1"], books)
    assert (plan.nodes, plan.live, plan.slower) == ({"n1", "n2"}, {"n2"}, {"n1"})


def test_all_means_the_nodes_that_have_the_tier():
    books = make_books(
        make_book("n1", host=MODEL), make_book("n2", host=0), make_book("n3", host=GIB)
    )
    plan = place(CACHE, want("All"), (), books)
    assert (plan.nodes, plan.wanted) == ({"n1"}, 2)
    assert plan.shortage.reason is Reason.NEVER_FITS
    plan = place(CACHE, want("All"), (), make_books(make_book("n2", host=0)))
    assert (plan.wanted, plan.shortage.reason) == (0, Reason.NO_ELIGIBLE_NODE)


def test_copies_in_the_tier_are_spread_over_zones():
    def zoned(name, zone):
        labels = {"topology.kubernetes.io/zone": zone}
        return make_book(name, node=make_node(name, labels=labels), host=MODEL)

    books = make_books(zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"))
    plan = place(CACHE, want(2), (), books)
    assert "b1" in plan.nodes
    assert len(plan.nodes) == 2


def test_a_copy_whose_tier_shrank_before_it_began_is_stuck():
    full = {"sizes": {"v1": MODEL, "x": 5 * GIB}, "in_host": ["v1", "x"]}
    assert is_stuck(want(), make_book("n1", host=6 * GIB, **full))
    assert not is_stuck(want(), make_book("n1", host=9 * GIB, **full))


def test_while_it_is_still_a_wish_for_another_tier_takes_no_new_node_above_min_ready():
    """Copies on the disk count for minReady; in place of missing ones no node comes."""
    books = make_books(held("n1", tier=Tier.HOST), held("n2", host=0), make_book("n3", host=MODEL))
    demand = want(copies=3, min_ready=2)
    plan = place(CACHE, demand, {"n1", "n2"}, books, is_still=True)
    assert (plan.nodes, plan.slower, plan.shortage) == ({"n1", "n2"}, {"n2"}, None)
    assert place(CACHE, demand, {"n1", "n2"}, books).nodes == {"n1", "n2", "n3"}
    below = place(CACHE, want(copies=3, min_ready=3), {"n1", "n2"}, books, is_still=True)
    assert (below.nodes, below.slower) == ({"n1", "n2", "n3"}, {"n2"})


def test_while_it_is_still_a_shortage_below_min_ready_is_told():
    books = make_books(held("n1", host=0), make_book("n2", host=0))
    plan = place(CACHE, want(copies=2, min_ready=2), {"n1"}, books, is_still=True)
    assert (plan.nodes, plan.shortage.reason) == ({"n1"}, Reason.NO_ELIGIBLE_NODE)


def want_on_gpu(copies=1, **placement):
    return make_demand(MODEL, tier=Tier.GPU, copies=copies, **placement)


def test_the_memory_of_cards_is_a_tier_with_a_capacity_of_its_own():
    books = make_books(
        make_book("in-memory", host=64 * GIB),
        make_book("full", gpu=6 * GIB, sizes={"x": 3 * GIB}, on_gpu=["x"]),
        make_book("fit", host=0, gpu=MODEL),
    )
    plan = place(CACHE, want_on_gpu(copies=2), (), books)
    assert plan.nodes == {"fit"}
    assert plan.shortage.reason is Reason.INSUFFICIENT_SPACE
    for words in ("1 without a GPU tier", "1 without room in the GPU tier", "3Gi free there"):
        assert words in plan.shortage.message
    lacking = place(CACHE, want_on_gpu(), (), make_books(make_book("n1", host=64 * GIB)))
    assert lacking.shortage.reason is Reason.NO_ELIGIBLE_NODE
    assert "set gpu.capacity" in lacking.shortage.message


def test_what_is_wanted_on_a_card_is_booked_in_host_memory_too_and_needs_no_room_there():
    book = make_book("n1", host=MODEL, gpu=MODEL, sizes={"x": MODEL}, on_gpu=["x"])
    assert book.faster[Tier.HOST].booked_bytes == MODEL
    assert place(CACHE, want(), (), make_books(book)).nodes == frozenset()
    books = make_books(make_book("n1", gpu=MODEL), make_book("n2", host=1, gpu=MODEL))
    assert place(CACHE, want_on_gpu(copies=2), (), books).nodes == {"n1", "n2"}
