"""What placement in a tier above the disk promises for any cluster."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from builders import make_book, make_demand, make_entry, make_entry_spec
from modelcache_api.names import EntryState, Tier
from modelcache_operator.decide.eligibility import refuse_displacing, refuse_to_keep
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.placement import place
from modelcache_operator.decide.world import Uid

SIZE = 10
CACHE = Uid("cache")
VERSION = Uid("v1")


@st.composite
def a_book(draw, name: str):
    others = draw(st.dictionaries(st.sampled_from(["o1", "o2"]), st.integers(1, 15), max_size=2))
    state = draw(st.sampled_from([None, EntryState.PENDING, EntryState.CACHED, EntryState.EVICTED]))
    return make_book(
        name,
        liveness=draw(st.sampled_from([*[Liveness.ALIVE] * 4, *Liveness])),
        capacity=draw(st.sampled_from([None, 5, 20, 40])),
        host=draw(st.sampled_from([None, 0, 5, 10, 30])),
        sizes=others,
        in_host=[uid for uid in others if draw(st.booleans())],
        wanted=[make_entry_spec(uid, evictable=draw(st.booleans())) for uid in others],
        entries=[make_entry(state=state)] if state else [],
    )


@st.composite
def clusters(draw):
    names = [f"n{number}" for number in range(draw(st.integers(1, 6)))]
    books = {name: draw(a_book(name)) for name in names}
    assigned = frozenset(draw(st.sets(st.sampled_from(names))))
    copies = draw(st.one_of(st.integers(1, 4), st.just("All")))
    return books, assigned, make_demand(SIZE, tier=Tier.HOST, copies=copies)


def after(books, plan):
    """The books once the plan is carried out, and nothing fetched yet."""

    def carried_out(name, book):
        if name not in plan.nodes:
            return book
        evicted = (entry := book.reported.get(VERSION)) and entry.state is EntryState.EVICTED
        more = {VERSION: 0 if evicted else SIZE}
        rooms = dict(book.faster)
        if Tier.HOST in rooms and name not in plan.slower:
            room = rooms[Tier.HOST]
            rooms[Tier.HOST] = replace(room, wanted={**room.wanted, **more})
        booked = book.booked_bytes + more[VERSION]
        wanted = {**book.wanted, **more}
        return replace(book, wanted=wanted, booked_bytes=booked, faster=rooms)

    return {name: carried_out(name, book) for name, book in books.items()}


@given(clusters())
def test_placing_again_changes_nothing(cluster):
    books, assigned, demand = cluster
    plan = place(CACHE, demand, assigned, books)
    again = place(CACHE, demand, plan.nodes, after(books, plan))
    assert (again.nodes, again.live, again.slower) == (plan.nodes, plan.live, plan.slower)
    assert (again.shortage is None) == (plan.shortage is None)


@given(clusters())
def test_a_wish_for_a_faster_tier_never_costs_a_verified_copy_that_is_wanted(cluster):
    books, assigned, demand = cluster

    def count_verified(names):
        return sum(books[n].has_live_agent and books[n].has_verified(VERSION) for n in names)

    kept = [name for name in assigned if refuse_to_keep(demand, books[name]) is None]
    plan = place(CACHE, demand, assigned, books)
    assert count_verified(plan.live) >= min(plan.wanted, count_verified(kept))
    assert len(plan.live - plan.slower) <= plan.wanted


@given(clusters())
def test_new_copies_come_only_where_the_tier_has_room(cluster):
    books, assigned, demand = cluster
    plan = place(CACHE, demand, assigned, books)
    assert not plan.slower - assigned
    for name in plan.nodes - assigned:
        assert refuse_displacing(demand, books[name]) is None
        room = books[name].faster[Tier.HOST]
        protected = sum(room.wanted.values()) - room.bytes_of(books[name].evictable)
        assert protected + SIZE <= room.capacity_bytes


@given(clusters())
def test_a_shortage_is_told_if_and_only_if_copies_in_the_tier_are_missing(cluster):
    books, assigned, demand = cluster
    plan = place(CACHE, demand, assigned, books)
    missing = len(plan.live - plan.slower) < plan.wanted
    assert (plan.shortage is not None) == (missing or plan.wanted == 0)
    if plan.shortage:
        assert len(plan.shortage.message) <= 512
