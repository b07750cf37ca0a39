"""What placement promises for any cluster."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from builders import make_book, make_demand, make_entry, make_entry_spec, make_node
from modelcache_api.names import EntryState
from modelcache_operator.decide.cache_node_spec import choose_evictable
from modelcache_operator.decide.eligibility import refuse_displacing, refuse_new
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.placement import Trouble, place
from modelcache_operator.decide.stuck import choose_movable, note_stuck
from modelcache_operator.decide.world import Uid

SIZE = 10
CACHE = Uid("cache")
VERSION = Uid("v1")


@st.composite
def a_book(draw, name: str):
    zone = draw(st.sampled_from(["", "a", "b"]))
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    labels |= draw(st.sampled_from([{}, {"pool": "gpu"}]))
    taints = draw(st.sampled_from([(), ("x:NoSchedule",), ("x:NoExecute",)]))
    others = draw(st.dictionaries(st.sampled_from(["o1", "o2"]), st.integers(1, 15), max_size=2))
    state = draw(st.sampled_from([None, *EntryState]))
    return make_book(
        name,
        node=make_node(
            name, labels=labels, taints=taints, is_unschedulable=draw(st.integers(0, 9)) == 0
        ),
        liveness=draw(st.sampled_from([*[Liveness.ALIVE] * 4, *Liveness])),
        capacity=draw(st.sampled_from([None, 5, 10, 20, 30])),
        sizes=others,
        wanted=[make_entry_spec(uid, evictable=draw(st.booleans())) for uid in others],
        entries=[make_entry(state=state)] if state else [],
    )


@st.composite
def clusters(draw):
    names = [f"n{number}" for number in range(draw(st.integers(0, 8)))]
    books = {name: draw(a_book(name)) for name in names}
    assigned = frozenset(draw(st.sets(st.sampled_from(names)))) if names else frozenset()
    copies = draw(st.one_of(st.integers(1, 5), st.just("All")))
    selector = draw(st.sampled_from([None, {"pool": "gpu"}]))
    return books, assigned, make_demand(SIZE, copies=copies, node_selector=selector)


def after(books, plan):
    """The books once the plan is carried out."""
    return {
        name: replace(
            book,
            wanted={**book.wanted, VERSION: SIZE} if name in plan.nodes else book.wanted,
            booked_bytes=book.booked_bytes + (SIZE if name in plan.nodes else 0),
        )
        for name, book in books.items()
    }


@given(clusters())
def test_placing_again_changes_nothing(cluster):
    books, assigned, demand = cluster
    plan = place(CACHE, demand, assigned, books)
    again = place(CACHE, demand, plan.nodes, after(books, plan))
    assert again.nodes == plan.nodes
    assert again.live == plan.live
    assert (again.shortage is None) == (plan.shortage is None)


@given(clusters())
def test_never_more_live_copies_than_asked_for(cluster):
    books, assigned, demand = cluster
    plan = place(CACHE, demand, assigned, books)
    assert len(plan.live) <= plan.wanted
    assert all(books[name].has_live_agent for name in plan.live)
    assert plan.live <= plan.nodes


@given(clusters())
def test_a_shortage_is_told_if_and_only_if_copies_are_missing(cluster):
    books, assigned, demand = cluster
    plan = place(CACHE, demand, assigned, books)
    assert (plan.shortage is not None) == (len(plan.live) < plan.wanted or plan.wanted == 0)
    if plan.shortage:
        assert len(plan.shortage.message) <= 512


@given(clusters())
def test_new_copies_come_only_where_they_fit_and_are_allowed(cluster):
    books, assigned, demand = cluster
    plan = place(CACHE, demand, assigned, books)
    for name in plan.nodes - assigned:
        assert refuse_displacing(demand, books[name]) is None
        protected = sum(
            size
            for uid, size in books[name].wanted.items()
            if uid != VERSION and uid not in books[name].evictable
        )
        assert protected + SIZE <= books[name].capacity_bytes


@given(clusters())
def test_nobody_is_displaced_while_a_free_node_is_left(cluster):
    books, assigned, demand = cluster
    plan = place(CACHE, demand, assigned, books)
    displacing = [n for n in plan.nodes - assigned if refuse_new(demand, books[n]) is not None]
    unused = [
        name
        for name in books.keys() - plan.nodes - assigned
        if refuse_new(demand, books[name]) is None
    ]
    assert not (displacing and unused)


@given(clusters(), st.data())
def test_what_stays_eligible_stays_whatever_happens_to_other_nodes(cluster, data):
    books, assigned, demand = cluster
    assume(demand.placement.copies != "All")
    plan = place(CACHE, demand, assigned, books)
    others = sorted(books.keys() - plan.nodes)
    gone = data.draw(st.sets(st.sampled_from(others))) if others else set()
    left = {name: book for name, book in after(books, plan).items() if name not in gone}
    left["new"] = make_book("new", node=make_node("new", labels={"pool": "gpu"}), capacity=1000)
    again = place(CACHE, demand, plan.nodes, left)
    assert plan.nodes <= again.nodes
    if plan.shortage is None:
        assert again.nodes == plan.nodes


@st.composite
def disks(draw):
    """Nodes whose books say that there is room, and whose disks may say otherwise."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 6)))]
    really_fits = {name: draw(st.booleans()) for name in names}
    booked = {name: draw(st.sampled_from([0, 0, 95])) for name in names}
    copies = draw(st.integers(1, len(names)))
    return really_fits, booked, copies


@given(disks())
def test_a_stuck_copy_moves_to_a_node_with_room_and_at_most_once_for_each_node(cluster):
    really_fits, booked, copies = cluster
    demand = make_demand(SIZE, copies=copies)
    nodes, since, left, moves = frozenset(), {}, frozenset(), 0
    for turn in range(3 * len(booked) + 3):
        books = {
            name: make_book(
                name,
                capacity=100,
                sizes={"other": size} | ({VERSION: SIZE} if name in nodes else {}),
                entries=[_report(really_fits[name] and size == 0)] if name in nodes else [],
            )
            for name, size in booked.items()
        }
        now = turn * 1000.0
        since = note_stuck(since, demand, nodes, books, now)
        movable = choose_movable(since, demand, books, now)
        plan = place(CACHE, demand, nodes, books, Trouble(movable, left))
        moves += len(plan.left)
        assert not plan.nodes & plan.left
        assert len(plan.nodes) >= len(nodes)
        nodes, left = plan.nodes, left | plan.left
        since = {name: at for name, at in since.items() if name in nodes}
    assert moves <= len(booked)
    good = {name for name in booked if really_fits[name] and booked[name] == 0}
    assert len(good & nodes) == min(len(good), copies)


def _report(fits):
    if fits:
        return make_entry(VERSION)
    return make_entry(VERSION, EntryState.FAILED, reason="InsufficientSpace")


@given(
    st.lists(st.sampled_from([EntryState.CACHED, EntryState.PENDING]), max_size=8),
    st.integers(1, 4),
    st.sets(st.integers(0, 7)),
)
def test_enough_verified_copies_are_never_given_up(states, min_ready, now):
    books = {
        f"n{number}": make_book(f"n{number}", entries=[make_entry(state=state)])
        for number, state in enumerate(states)
    }
    evictable_now = frozenset(f"n{number}" for number in now)
    arguments = {"min_ready": min_ready, "books": books}
    chosen = choose_evictable(CACHE, VERSION, books, evictable_now=evictable_now, **arguments)
    ready = {name for name, book in books.items() if book.has_verified(VERSION)}
    assert chosen <= ready
    assert len(ready - chosen) == min(min_ready, len(ready))
    again = choose_evictable(CACHE, VERSION, books, evictable_now=chosen, **arguments)
    assert again == chosen
