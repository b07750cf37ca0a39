"""Whatever is damaged: no label promises it, and nothing leaves its place too early."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fakes.agent_world import a_flight, a_held, a_world, an_entry, key_of
from modelcache_agent.decide.actions import Isolate, Repair, Scrub
from modelcache_agent.decide.ledger import Blob
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.scrub import Checkup, Damage, Stage
from modelcache_api.names import EntryState, Reason

NAMES = ("a", "b", "c", "d")
BLOBS = ("shared", *NAMES)


@st.composite
def worlds(draw):
    damage = {
        blob: Damage(blob, f"{blob}.bin", 5, 1, 1, (0,), draw(st.sampled_from(Stage)), repairs)
        for blob in draw(st.sets(st.sampled_from(BLOBS)))
        for repairs in [draw(st.integers(0, 2))]
    }
    held = []
    for name in NAMES:
        found = tuple(damage[blob] for blob in ("shared", name) if blob in damage)
        blobs = frozenset({Blob("shared", 5), Blob(name, 5)})
        held.append(a_held(name, blobs=blobs, is_verified=not found, damage=found))
    labels = st.none() | st.frozensets(st.sampled_from([key_of(name) for name in NAMES]))
    entries = tuple(an_entry(name, evictable=draw(st.booleans())) for name in NAMES)
    flying = draw(st.sets(st.sampled_from(NAMES)))
    return a_world(
        *entries,
        held=tuple(held),
        node_labels=draw(labels),
        flights=tuple(
            a_flight(
                entry, state=draw(st.sampled_from([EntryState.PENDING, EntryState.DOWNLOADING]))
            )
            for entry in entries
            if entry.uid in flying and held[NAMES.index(entry.uid)].damage
        ),
        checkups=tuple(
            Checkup(blob, draw(st.floats(0, 99)), draw(st.booleans())) for blob in BLOBS
        ),
        scrub_interval=draw(st.none() | st.floats(1, 99)),
        capacity=draw(st.sampled_from([20, 200])),
    )


def spoilt(world):
    return {damage.blob: damage for held in world.held for damage in held.damage}


@given(worlds())
def test_no_label_and_no_state_promises_a_damaged_content(world):
    plan = make_plan(world)
    for held, entry in zip(world.held, world.entries, strict=True):
        if held.damage:
            view = next(view for view in plan.entries if view.uid == entry.uid)
            assert entry.label_key not in plan.labels
            assert (view.reason, view.digest) == (Reason.DAMAGED, None)
            assert view.state is not EntryState.CACHED


@given(worlds())
def test_a_file_leaves_its_place_only_when_the_node_is_known_to_carry_no_label_of_it(world):
    plan = make_plan(world)
    isolated = {action.blob for action in plan.actions if isinstance(action, Isolate)}
    for blob in isolated:
        assert spoilt(world)[blob].stage is Stage.CONFIRMED
        assert world.node_labels is not None
        named = {h.digest for h in world.held if any(b.sha256 == blob for b in h.blobs)}
        keys = {e.label_key for e in world.entries if e.content_digest in named}
        assert world.node_labels.isdisjoint(keys)


@given(worlds())
def test_a_file_is_fetched_by_one_transfer_and_only_from_quarantine(world):
    plan = make_plan(world)
    by_uid = {e.uid: h for e, h in zip(world.entries, world.held, strict=True)}
    fetching = [f.uid for f in world.flights]
    for action in plan.actions:
        if isinstance(action, Repair):
            mine = by_uid[action.entry.uid].damage
            assert all(damage.stage is Stage.QUARANTINED for damage in mine)
            others = {d.blob for uid in fetching for d in by_uid[uid].damage}
            assert others.isdisjoint(damage.blob for damage in mine)
            fetching.append(action.entry.uid)


@given(worlds())
def test_what_is_read_is_suspected_or_due_and_the_oldest_of_its_kind(world):
    chosen = [a for a in make_plan(world).actions if isinstance(a, Scrub)]
    suspected = {blob for blob, d in spoilt(world).items() if d.stage is Stage.FOUND}
    if suspected:
        assert [set(action.blobs) for action in chosen] == [suspected]
        return
    if any(flight.state is EntryState.DOWNLOADING for flight in world.flights):
        assert chosen == []
        return
    ages = {c.blob: (c.was_repaired, c.age_seconds) for c in world.checkups}
    for action in chosen:
        order = [ages[blob] for blob in action.blobs]
        assert order == sorted(order, reverse=True)
        for blob in action.blobs:
            was_repaired, age = ages[blob]
            assert was_repaired or (world.scrub_interval and age >= world.scrub_interval)


@given(worlds(), st.floats(0, 1000))
def test_what_is_due_now_is_due_later(world, seconds):
    """So a plan that waits for a moment misses nothing."""
    first = make_plan(world)
    older = tuple(replace(c, age_seconds=c.age_seconds + seconds) for c in world.checkups)
    later = make_plan(replace(world, checkups=older))
    read = {b for a in first.actions if isinstance(a, Scrub) for b in a.blobs}
    assert read <= {b for a in later.actions if isinstance(a, Scrub) for b in a.blobs}
