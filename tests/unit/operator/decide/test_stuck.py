"""Which copies get no further where they are."""

from __future__ import annotations

import pytest

from builders import GIB, make_book, make_books, make_demand, make_entry, make_entry_spec
from modelcache_api.names import EntryState, Reason
from modelcache_operator.decide.placement import Trouble, place
from modelcache_operator.decide.stuck import (
    PATIENCE_SECONDS,
    choose_movable,
    is_stuck,
    note_stuck,
    seconds_until_movable,
)
from modelcache_operator.decide.world import Uid

FAILED, PENDING, DOWNLOADING = EntryState.FAILED, EntryState.PENDING, EntryState.DOWNLOADING
CACHE = Uid("cache")


def book(name="n1", state=None, reason="", *, booked=0, **fields):
    entries = [make_entry(state=state, reason=reason)] if state else []
    return make_book(name, entries=entries, sizes={"v1": GIB, "other": booked * GIB}, **fields)


FULL = {"booked": 100}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(book(state=FAILED, reason=Reason.INSUFFICIENT_SPACE), True, id="no space"),
        pytest.param(book(state=FAILED, reason=Reason.STORE_ERROR), True, id="a broken disk"),
        pytest.param(book(state=FAILED, reason=Reason.NOT_A_MODEL), False, id="bad everywhere"),
        pytest.param(book(state=FAILED, reason=Reason.AUTH_FAILED), False, id="no credentials"),
        pytest.param(book(), False, id="not begun, with room"),
        pytest.param(book(**FULL), True, id="not begun, without room"),
        pytest.param(
            book(wanted=[make_entry_spec("other", evictable=True)], **FULL),
            False,
            id="not begun, others give way",
        ),
        pytest.param(book(capacity=None, **FULL), False, id="the disk is not reported yet"),
        pytest.param(book(state=DOWNLOADING, **FULL), False, id="on its way after all"),
        pytest.param(book(state=EntryState.EVICTED, **FULL), False, id="given up"),
        pytest.param(book(state=EntryState.CACHED, **FULL), False, id="verified"),
    ],
)
def test_a_copy_is_stuck_if_its_node_lacks_what_another_may_have(seen, expected):
    assert is_stuck(make_demand(), seen) is expected


def test_a_copy_must_be_stuck_for_a_while_and_another_attempt_does_not_set_that_back():
    demand = make_demand()
    no_space = make_books(book(state=FAILED, reason=Reason.INSUFFICIENT_SPACE))
    since = note_stuck({}, demand, ["n1"], no_space, 100.0)
    assert choose_movable(since, demand, no_space, 100.0) == frozenset()
    assert seconds_until_movable(since, 130.0) == PATIENCE_SECONDS - 30
    trying = make_books(book(state=DOWNLOADING))
    since = note_stuck(since, demand, ["n1"], trying, 150.0)
    assert choose_movable(since, demand, trying, 900.0) == frozenset()
    assert choose_movable(since, demand, no_space, 100 + PATIENCE_SECONDS) == {"n1"}
    assert note_stuck(since, demand, ["n1"], make_books(book(state=EntryState.CACHED)), 1.0) == {}
    assert note_stuck(since, demand, ["n1"], {}, 1.0) == {}
    assert seconds_until_movable({}, 1.0) is None


@pytest.mark.parametrize(
    ("other", "left", "expected"),
    [
        pytest.param(make_book("n2"), (), {"n2"}, id="to a node with room"),
        pytest.param(make_book("n2", sizes={"o": 100 * GIB}), (), {"n1"}, id="not without room"),
        pytest.param(
            make_book("n2", sizes={"o": 100 * GIB}, wanted=[make_entry_spec("o", evictable=True)]),
            (),
            {"n1"},
            id="not at the expense of others",
        ),
        pytest.param(make_book("n2"), ("n2",), {"n1"}, id="not back to where it failed"),
    ],
)
def test_a_movable_copy_moves(other, left, expected):
    books = make_books(book(state=FAILED, reason=Reason.INSUFFICIENT_SPACE), other)
    trouble = Trouble(frozenset({"n1"}), frozenset(left))
    plan = place(CACHE, make_demand(copies=1), ["n1"], books, trouble)
    assert plan.nodes == expected
    assert plan.left == frozenset({"n1"}) - expected


def test_of_too_many_copies_a_stuck_one_goes_first():
    books = make_books(book("n1", PENDING), book("n2", PENDING))
    for stuck, kept in (("n1", "n2"), ("n2", "n1")):
        trouble = Trouble(movable=frozenset({stuck}))
        assert place(CACHE, make_demand(copies=1), books, books, trouble).nodes == {kept}


def test_where_every_node_holds_a_copy_none_moves():
    books = make_books(book(state=FAILED, reason=Reason.INSUFFICIENT_SPACE), make_book("n2"))
    plan = place(CACHE, make_demand(copies="All"), ["n1"], books, Trouble(frozenset({"n1"})))
    assert plan.nodes == {"n1", "n2"}
