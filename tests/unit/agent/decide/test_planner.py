"""What the agent does next, and why."""

from __future__ import annotations

import pytest

from fakes.agent_world import a_flight, a_held, a_world, an_entry, digest_of, key_of, source_of
from modelcache_agent.decide.actions import (
    CancelFetch,
    DropPartial,
    Evict,
    Fetch,
    Propose,
    Remove,
    SetLabels,
    Verify,
)
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.setbacks import Setback
from modelcache_agent.decide.world import Origin
from modelcache_api.names import EntryState, Reason


def a_setback(entry, reason=Reason.TRANSFER_FAILED, retry_at=2000.0):
    return Setback(reason, "why", retry_at, 1, entry.source_digest, entry.content_digest)


def view_of(plan, uid):
    return next(view for view in plan.entries if view.uid == uid)


A, B, C = an_entry("a"), an_entry("b"), an_entry("c")
OLD = an_entry("old", evictable=True)
UNKNOWN = an_entry("a", known=False)


@pytest.mark.parametrize(
    ("world", "actions"),
    [
        pytest.param(a_world(), (), id="nothing wanted, nothing here"),
        pytest.param(a_world(A), (Fetch(A),), id="a new entry is fetched"),
        pytest.param(a_world(A, held=[a_held("a")]), (), id="what is here and labelled is done"),
        pytest.param(
            a_world(A, held=[a_held("a")], node_labels=None),
            (SetLabels(frozenset({key_of("a")})),),
            id="labels that are not known are applied once more",
        ),
        pytest.param(
            a_world(UNKNOWN, held=[a_held("a", adopted=False)]),
            (Propose(UNKNOWN, digest_of("a")),),
            id="bytes of unknown content are proposed",
        ),
        pytest.param(
            a_world(UNKNOWN, held=[a_held("a")]), (), id="adopted bytes wait for their label key"
        ),
        pytest.param(
            a_world(UNKNOWN, held=[a_held("a", origins=(Origin("z", source_of("a"), True),))]),
            (Remove(digest_of("a")), Fetch(UNKNOWN)),
            id="an equal sourceDigest of another version proves nothing",
        ),
        pytest.param(
            a_world(an_entry("b"), held=[a_held("b", origins=())]),
            (),
            id="a known digest decides alone, whoever brought the bytes",
        ),
        pytest.param(
            a_world(A, held=[a_held("a", is_verified=False)]),
            (SetLabels(frozenset()), Verify(digest_of("a"))),
            id="C13 what does not look as recorded loses its label and is hashed",
        ),
        pytest.param(a_world(A, flights=(a_flight(A),)), (), id="one flight for one entry"),
        pytest.param(
            a_world(flights=(a_flight(A),)), (CancelFetch("a"),), id="an unwanted flight is ended"
        ),
        pytest.param(
            a_world(A, flights=(a_flight(A, source_digest=source_of("z")),)),
            (CancelFetch("a"),),
            id="a flight for another source is ended before the new one begins",
        ),
        pytest.param(
            a_world(A, partials={"a": 3, "z": 5}),
            (DropPartial("z"), Fetch(A)),
            id="C15 partial files of gone entries are dropped, of wanted ones resumed",
        ),
        pytest.param(
            a_world(A, partials={"a": 3}, setbacks={"a": a_setback(A, Reason.NOT_A_MODEL)}),
            (DropPartial("a"),),
            id="C20 partial files that are no model are dropped",
        ),
        pytest.param(
            a_world(A, partials={"a": 3}, setbacks={"a": a_setback(A, Reason.INSUFFICIENT_SPACE)}),
            (DropPartial("a"),),
            id="C16-2 partial files are dropped when the disk ran full",
        ),
        pytest.param(
            a_world(A, partials={"a": 3}, setbacks={"a": a_setback(A, Reason.SOURCE_CHANGED)}),
            (DropPartial("a"),),
            id="C12 partial files of a source that has changed are dropped",
        ),
        pytest.param(
            a_world(A, partials={"a": 3}, setbacks={"a": a_setback(A, Reason.SOURCE_GONE)}),
            (),
            id="C21 partial files of a source that is gone are kept: it may come back",
        ),
        pytest.param(
            a_world(A, partials={"a": 3}, setbacks={"a": a_setback(A)}),
            (),
            id="partial files of an interrupted transfer are kept",
        ),
        pytest.param(
            a_world(A, setbacks={"a": a_setback(A, retry_at=999.0)}),
            (Fetch(A),),
            id="a failure is tried again in time",
        ),
        pytest.param(
            a_world(A, setbacks={"a": a_setback(an_entry("a", known=False))}),
            (Fetch(A),),
            id="a changed entry is tried at once",
        ),
        pytest.param(
            a_world(A, evicted=frozenset({"a"})), (), id="what was evicted is not fetched again"
        ),
        pytest.param(
            a_world(A, B, C, max_models=2), (Fetch(A), Fetch(B)), id="models wait for their turn"
        ),
    ],
)
def test_the_plan(world, actions):
    assert make_plan(world).actions == actions


@pytest.mark.parametrize(
    ("world", "state", "reason"),
    [
        pytest.param(a_world(A), EntryState.DOWNLOADING, Reason.DOWNLOADING, id="being fetched"),
        pytest.param(
            a_world(A, held=[a_held("a")]), EntryState.CACHED, Reason.CACHED, id="held and verified"
        ),
        pytest.param(
            a_world(UNKNOWN, held=[a_held("a", adopted=False)]),
            EntryState.VERIFYING,
            Reason.VERIFYING,
            id="not cached before its content is adopted",
        ),
        pytest.param(
            a_world(
                UNKNOWN,
                held=[a_held("a", adopted=False)],
                setbacks={"a": a_setback(UNKNOWN, Reason.OPERATOR_UNREACHABLE)},
            ),
            EntryState.VERIFYING,
            Reason.OPERATOR_UNREACHABLE,
            id="the operator is away when it should adopt",
        ),
        pytest.param(
            a_world(
                UNKNOWN,
                held=[a_held("a", adopted=False)],
                setbacks={"a": a_setback(UNKNOWN, Reason.DIGEST_MISMATCH)},
            ),
            EntryState.FAILED,
            Reason.DIGEST_MISMATCH,
            id="another content was adopted",
        ),
        pytest.param(
            a_world(A, setbacks={"a": a_setback(A)}),
            EntryState.FAILED,
            Reason.TRANSFER_FAILED,
            id="failed and waiting",
        ),
        pytest.param(
            a_world(A, setbacks={"a": a_setback(A, Reason.NOT_KNOWN_YET)}),
            EntryState.PENDING,
            Reason.NOT_KNOWN_YET,
            id="the operator does not know it yet",
        ),
        pytest.param(
            a_world(an_entry("a", 101)), EntryState.FAILED, Reason.NEVER_FITS, id="never fits"
        ),
        pytest.param(
            a_world(an_entry("a", 60), held=[a_held("b", 60)], capacity=100),
            EntryState.PENDING,
            Reason.WAITING,
            id="waits for what is being released",
        ),
        pytest.param(
            a_world(an_entry("b", 60), an_entry("a", 60), held=[a_held("b", 60)]),
            EntryState.FAILED,
            Reason.INSUFFICIENT_SPACE,
            id="does not fit beside what must stay",
        ),
        pytest.param(
            a_world(A, evicted=frozenset({"a"})), EntryState.EVICTED, Reason.EVICTED, id="evicted"
        ),
        pytest.param(
            a_world(A, held=[a_held("a", is_verified=False)]),
            EntryState.VERIFYING,
            Reason.VERIFYING,
            id="being hashed again",
        ),
    ],
)
def test_the_state_of_an_entry(world, state, reason):
    view = view_of(make_plan(world), "a")
    assert (view.state, view.reason) == (state, reason)


def test_C16_1_refusal_comes_before_the_first_byte_with_the_arithmetic():
    world = a_world(an_entry("a", 60), capacity=100, free_bytes=40)
    plan = make_plan(world)
    assert plan.actions == ()
    message = view_of(plan, "a").message
    assert "needs 60 (60 bytes), 40 (40 bytes) are free" in message
    assert "file system free 40" in message


def test_C16_1_what_can_never_fit_evicts_nobody():
    world = a_world(OLD, an_entry("a", 101), held=[a_held("old", 90)])
    plan = make_plan(world)
    assert plan.actions == ()
    assert plan.condemned == frozenset()


def test_C16_3_what_is_cached_needs_no_space():
    world = a_world(an_entry("a", 90), held=[a_held("a", 90)], free_bytes=0)
    plan = make_plan(world)
    assert plan.actions == ()
    assert view_of(plan, "a").state is EntryState.CACHED


def test_a_partial_needs_only_the_rest():
    world = a_world(an_entry("a", 60), partials={"a": 50}, free_bytes=10)
    assert make_plan(world).actions == (Fetch(an_entry("a", 60)),)


def test_the_free_space_of_the_disk_is_shared_with_running_transfers():
    b = an_entry("b", 50)
    world = a_world(b, an_entry("a", 30), flights=(a_flight(b),), free_bytes=70)
    assert view_of(make_plan(world), "a").reason is Reason.INSUFFICIENT_SPACE


# --- eviction ---------------------------------------------------------------------------------


def a_full_node(*olds, newcomer=60, **changes):
    """Four evictable contents of 25 bytes; the older the number, the longer unused."""
    names = olds or ("o1", "o2", "o3", "o4")
    entries = tuple(an_entry(name, 25, evictable=True) for name in names)
    held = [a_held(name, 25, last_used=float(number)) for number, name in enumerate(names)]
    return a_world(*entries, an_entry("new", newcomer), held=held, **changes)


def evictions(plan):
    return [action.digest for action in plan.actions if isinstance(action, Evict)]


def test_victims_are_the_longest_unused_and_no_more_than_needed():
    plan = make_plan(a_full_node(newcomer=45))
    assert plan.condemned == {digest_of("o1"), digest_of("o2")}


def test_labels_of_victims_go_first_and_bytes_only_after_the_acknowledgement():
    world = a_full_node(newcomer=20)
    first = make_plan(world)
    kept = frozenset(key_of(name) for name in ("o2", "o3", "o4"))
    assert first.actions == (SetLabels(kept),)
    assert view_of(first, "o1").state is EntryState.EVICTED
    assert view_of(first, "new").reason is Reason.WAITING
    second = make_plan(a_full_node(newcomer=20, node_labels=kept, condemned=first.condemned))
    assert second.actions == (Evict(digest_of("o1"), ("o1",)),)


@pytest.mark.parametrize("node_labels", [None, frozenset({key_of("o1"), "cache.modelcache.io/x"})])
def test_while_the_labels_are_not_settled_nothing_goes(node_labels):
    worlds = (
        a_full_node(newcomer=20, node_labels=node_labels),
        a_world(held=[a_held("a")], node_labels=node_labels),
    )
    actions = [action for world in worlds for action in make_plan(world).actions]
    assert not any(isinstance(action, Evict | Remove) for action in actions)


def test_C59_models_in_use_are_no_victims():
    plan = make_plan(a_full_node(newcomer=45, in_use=frozenset({digest_of("o1")})))
    assert plan.condemned == {digest_of("o2"), digest_of("o3")}


def test_C59_when_too_much_is_in_use_nobody_goes():
    in_use = frozenset(digest_of(name) for name in ("o1", "o2", "o3"))
    plan = make_plan(a_full_node(newcomer=45, in_use=in_use))
    assert plan.condemned == frozenset()
    assert view_of(plan, "new").reason is Reason.INSUFFICIENT_SPACE


def test_use_is_looked_at_only_where_it_matters():
    assert not make_plan(a_world(A, in_use=None)).must_look_at_use
    plan = make_plan(a_full_node(newcomer=20, in_use=None))
    assert plan.must_look_at_use
    assert plan.condemned == frozenset()


def test_what_an_entry_protects_is_no_victim_even_if_another_entry_does_not_mind():
    twin = an_entry("old", 80).model_copy(update={"uid": "twin", "evictable": False})
    old = an_entry("old", 80, evictable=True)
    plan = make_plan(a_world(old, twin, an_entry("new", 50), held=[a_held("old", 80)]))
    assert plan.condemned == frozenset()


def test_a_redundant_victim_is_spared():
    """The small one comes first in order, but the large one is needed and alone enough."""
    entries = (an_entry("small", 10, evictable=True), an_entry("large", 80, evictable=True))
    held = [a_held("small", 10, last_used=1.0), a_held("large", 80, last_used=2.0)]
    plan = make_plan(a_world(*entries, an_entry("new", 50), held=held))
    assert plan.condemned == {digest_of("large")}


def test_former_victims_stay_first_in_line():
    plan = make_plan(a_full_node(newcomer=20, condemned=frozenset({digest_of("o3")})))
    assert plan.condemned == {digest_of("o3")}


def test_ties_are_broken_by_digest():
    names = ("t1", "t2", "t3")
    entries = tuple(an_entry(name, 30, evictable=True) for name in names)
    held = [a_held(name, 30) for name in names]
    plans = [
        make_plan(a_world(*entries, an_entry("new", 20), held=order))
        for order in (held, held[::-1])
    ]
    assert plans[0].condemned == plans[1].condemned == {min(digest_of(name) for name in names)}


def test_a_small_newcomer_does_not_take_what_an_earlier_one_waits_for():
    """`big` waits for o1's bytes; `tiny` would fit now, but not once `big` has come."""
    entries = (an_entry("o1", 60, evictable=True), an_entry("stay", 20))
    held = [a_held("o1", 60), a_held("stay", 20)]
    world = a_world(*entries, an_entry("big", 75), an_entry("tiny", 10), held=held)
    plan = make_plan(world)
    assert view_of(plan, "big").reason is Reason.WAITING
    assert view_of(plan, "tiny").reason is Reason.INSUFFICIENT_SPACE


def test_bytes_pending_release_are_not_free():
    world = a_world(an_entry("a", 60), pending_release=50)
    assert view_of(make_plan(world), "a").reason is Reason.INSUFFICIENT_SPACE


def test_a_lowered_capacity_makes_contents_leave():
    plan = make_plan(a_full_node("o1", "o2", newcomer=1, capacity=40))
    assert digest_of("o1") in plan.condemned


def test_an_evicted_content_that_came_back_with_another_entry_counts():
    world = a_world(A, held=[a_held("a")], evicted=frozenset({"a"}))
    assert view_of(make_plan(world), "a").state is EntryState.CACHED


# --- labels -----------------------------------------------------------------------------------


def test_C34_a_gone_entry_loses_its_label_then_its_bytes():
    gone = a_world(held=[a_held("a")], node_labels=frozenset({key_of("a")}))
    assert make_plan(gone).actions == (SetLabels(frozenset()),)
    acknowledged = a_world(held=[a_held("a")], node_labels=frozenset())
    assert make_plan(acknowledged).actions == (Remove(digest_of("a")),)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"content_digest": digest_of("other")}, id="of another content"),
        pytest.param({"content_digest": None}, id="of a content nobody knows"),
        pytest.param({"label_key": None}, id="without a key"),
        pytest.param({"label_key": "kubernetes.io/hostname"}, id="outside our prefix"),
    ],
)
def test_no_label(changes):
    entry = A.model_copy(update=changes)
    assert make_plan(a_world(entry, held=[a_held("a")])).labels == frozenset()


def test_at_most_64_labels_whatever_the_order_of_entries():
    names = [f"v{number}" for number in range(70)]
    entries = [an_entry(name, 1) for name in names]
    held = [a_held(name, 1) for name in names]
    plan = make_plan(a_world(*entries, held=held))
    assert len(plan.labels) == 64
    assert plan.labels == make_plan(a_world(*entries[::-1], held=held)).labels
    over = [view for view in plan.entries if view.reason is Reason.TOO_MANY_MODELS]
    assert len(over) == 6
    assert {view.state for view in over} == {EntryState.CACHED}


def test_two_entries_of_one_content_have_two_labels_and_one_copy():
    twin = A.model_copy(update={"uid": "twin", "label_key": key_of("twin")})
    plan = make_plan(a_world(A, twin, held=[a_held("a")], node_labels=frozenset()))
    assert plan.labels == {key_of("a"), key_of("twin")}
    assert plan.actions == (SetLabels(plan.labels),)


def test_a_new_plan_is_due_when_the_first_setback_ends():
    setbacks = {"a": a_setback(A, retry_at=1500.0), "b": a_setback(B, retry_at=1300.0)}
    assert make_plan(a_world(A, B, setbacks=setbacks)).recheck_at == 1300.0
