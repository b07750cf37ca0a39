from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.agent_world import a_flight, a_held, a_world, an_entry, digest_of, key_of
from modelcache_agent.decide.actions import (
    Evict,
    Isolate,
    Repair,
    Scrub,
    SetLabels,
)
from modelcache_agent.decide.ledger import Blob
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.scrub import (
    MOST_FILES,
    Checkup,
    Damage,
    ScrubChoice,
    Stage,
    age_of,
    choose_scrub,
    describe_damage,
)
from modelcache_agent.decide.setbacks import Setback
from modelcache_api.names import EntryState, Reason

HOUR = 3600.0
A, B = an_entry("a"), an_entry("b")


def blob_of(name: str) -> str:
    return f"blob of {name}"


def a_damage(name: str = "a", stage: Stage = Stage.FOUND, **changes) -> Damage:
    damage = Damage(blob_of(name), "model.safetensors", 10, 1, 1, (0,), stage)
    return replace(damage, **changes)


def damaged(name: str = "a", stage: Stage = Stage.FOUND, **changes):
    return a_held(name, is_verified=False, damage=(a_damage(name, stage, **changes),))


def seen(**ages: float):
    return tuple(Checkup(blob_of(name), age) for name, age in ages.items())


def scrubbing(*entries, interval: float | None = HOUR, **changes):
    return a_world(*entries, scrub_interval=interval, **changes)


BOTH = (a_held("a"), a_held("b"))


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        pytest.param(
            scrubbing(A, B, held=BOTH, checkups=seen(a=HOUR, b=2 * HOUR)),
            (blob_of("b"), blob_of("a")),
            id="what was checked longest ago is first",
        ),
        pytest.param(
            scrubbing(A, B, held=BOTH, checkups=seen(a=HOUR - 1, b=HOUR)),
            (blob_of("b"),),
            id="what was checked within the interval is left alone",
        ),
        pytest.param(
            scrubbing(A, held=BOTH[:1], checkups=seen(a=HOUR), flights=(a_flight(B),)),
            None,
            id="transfers go before checks",
        ),
        pytest.param(
            scrubbing(
                A,
                held=BOTH[:1],
                checkups=seen(a=HOUR),
                flights=(a_flight(B, state=EntryState.PENDING),),
            ),
            (blob_of("a"),),
            id="a transfer that only waits for another node does not need the disk",
        ),
        pytest.param(
            scrubbing(A, held=BOTH[:1], checkups=seen(a=9 * HOUR), interval=None),
            None,
            id="switched off",
        ),
        pytest.param(
            scrubbing(
                A, held=BOTH[:1], checkups=(Checkup(blob_of("a"), 1.0, True),), interval=None
            ),
            (blob_of("a"),),
            id="a repaired file is read back, switched off or not",
        ),
        pytest.param(
            scrubbing(A, held=(damaged(),), checkups=seen(a=1.0), flights=(a_flight(B),)),
            (blob_of("a"),),
            id="what is suspected is judged at once",
        ),
        pytest.param(
            scrubbing(A, held=(damaged(stage=Stage.QUARANTINED),), checkups=seen(a=9 * HOUR)),
            None,
            id="what lies in quarantine is not read",
        ),
        pytest.param(
            scrubbing(A, held=(a_held("a", is_verified=False),), checkups=seen(a=9 * HOUR)),
            None,
            id="what is in doubt is hashed anyway",
        ),
    ],
)
def test_what_is_read_next(world, expected):
    choice = choose_scrub(world)
    assert choice.action == (None if expected is None else Scrub(expected))


def test_without_anything_due_the_oldest_says_when_to_look_again():
    world = scrubbing(A, B, held=BOTH, checkups=seen(a=600.0, b=1200.0))
    assert choose_scrub(world).recheck_at == world.now + HOUR - 1200.0
    assert make_plan(world).recheck_at == world.now + HOUR - 1200.0


def test_one_errand_is_bounded():
    names = [f"n{number:03}" for number in range(MOST_FILES + 9)]
    held = a_held("a", blobs=frozenset(Blob(blob_of(name), 1) for name in names))
    world = scrubbing(A, held=(held,), checkups=seen(**dict.fromkeys(names, HOUR)))
    assert len(choose_scrub(world).action.blobs) == MOST_FILES


def test_C62_a_persisted_time_in_the_future_counts_as_now():
    assert age_of(100.0, 160.0) == (60.0, False)
    assert age_of(160.0, 100.0) == (0.0, True)


@pytest.mark.parametrize(
    ("stage", "node_labels", "expected"),
    [
        (Stage.FOUND, {"a"}, (SetLabels(frozenset()), Scrub((blob_of("a"),)))),
        (Stage.CONFIRMED, {"a"}, (SetLabels(frozenset()),)),
        (Stage.CONFIRMED, None, (SetLabels(frozenset()),)),
        (Stage.CONFIRMED, set(), (Isolate(blob_of("a")),)),
        (Stage.QUARANTINED, set(), (Repair(A, 10),)),
    ],
)
def test_C22_the_label_goes_first_then_the_file_then_it_is_fetched(stage, node_labels, expected):
    labels = None if node_labels is None else frozenset(key_of(name) for name in node_labels)
    plan = make_plan(a_world(A, held=(damaged(stage=stage),), node_labels=labels))
    assert plan.actions == expected
    (view,) = plan.entries
    assert (view.reason, view.digest) == (Reason.DAMAGED, None)
    assert view.state is not EntryState.CACHED
    assert "'model.safetensors'" in view.message


def test_C22_a_file_of_two_versions_takes_both_labels_and_is_fetched_once():
    harm = a_damage("a", Stage.QUARANTINED)
    held = tuple(a_held(name, is_verified=False, damage=(harm,)) for name in "ab")
    plan = make_plan(a_world(A, B, held=held, node_labels=frozenset()))
    assert plan.labels == frozenset()
    assert plan.actions == (Repair(A, 10),)
    assert "another version" in plan.entries[1].message
    flying = make_plan(a_world(A, B, held=held, node_labels=frozenset(), flights=(a_flight(B),)))
    assert flying.actions == ()
    assert [view.reason for view in flying.entries] == [Reason.DAMAGED] * 2


def test_C21_what_cannot_be_fetched_again_says_why_and_keeps_its_partial_files():
    setback = Setback(Reason.SOURCE_GONE, "HTTP 404", 2000.0, 1, A.source_digest, A.content_digest)
    plan = make_plan(
        a_world(
            A,
            held=(damaged(stage=Stage.QUARANTINED),),
            node_labels=frozenset(),
            setbacks={"a": setback},
            partials={"a": 5},
        )
    )
    assert plan.actions == ()
    (view,) = plan.entries
    assert (view.state, view.reason) == (EntryState.FAILED, Reason.DAMAGED)
    assert "cannot be fetched again: SourceGone: HTTP 404" in view.message
    assert plan.recheck_at == 2000.0


@pytest.mark.parametrize(
    ("repairs", "pause"), [(0, 0.0), (1, 600.0), (2, 1200.0), (3, 2400.0), (50, 24 * HOUR)]
)
def test_C22_each_further_repair_of_one_file_waits_longer(repairs, pause):
    held = damaged(stage=Stage.QUARANTINED, repairs=repairs, since=1000.0)
    world = a_world(A, held=(held,), node_labels=frozenset())
    if pause:
        early = make_plan(replace(world, now=1000.0 + pause - 1))
        assert early.actions == ()
        assert early.recheck_at == 1000.0 + pause
        assert early.entries[0].state is EntryState.FAILED
        assert "check the disk" in early.entries[0].message
    assert make_plan(replace(world, now=1000.0 + pause)).actions == (Repair(A, 10),)


def test_a_repair_without_room_waits_and_evicts_no_damaged_content():
    held = (damaged(stage=Stage.QUARANTINED), a_held("b", 95))
    entries = (A, an_entry("b", 95, evictable=True))
    world = a_world(*entries, held=held, node_labels=frozenset({key_of("b")}))
    plan = make_plan(world)
    assert plan.entries[0].reason is Reason.DAMAGED
    assert not any(isinstance(action, Repair) for action in plan.actions)
    newcomer = a_world(
        an_entry("a", evictable=True), an_entry("c", 95), held=held[:1], node_labels=frozenset()
    )
    assert not [a for a in make_plan(newcomer).actions if isinstance(a, Evict)]


def test_damage_is_told_by_file_and_piece():
    many = a_damage(size_bytes=100 << 20, pieces=tuple(range(1, 8)))
    assert describe_damage([many]) == (
        "damaged on this node's disk: 7 of 13 pieces of 'model.safetensors' (1, 2, 3, 4, 5, ...)"
    )
    unknown = a_damage(pieces=(), path="a\nb")
    assert describe_damage([unknown, many]) == (
        "damaged on this node's disk: 'a\\nb' and 1 more files"
    )


def test_a_damaged_content_is_no_content_of_the_label_it_had():
    assert digest_of("a") == A.content_digest
    for stage in Stage:
        plan = make_plan(a_world(A, held=(damaged(stage=stage),)))
        assert plan.labels == frozenset()


def test_C61_however_many_checks_were_missed_each_file_is_read_once():
    missed = scrubbing(A, B, held=BOTH, checkups=seen(a=99 * HOUR, b=HOUR))
    assert choose_scrub(missed).action == Scrub((blob_of("a"), blob_of("b")))
    done = scrubbing(A, B, held=BOTH, checkups=seen(a=0.0, b=0.0))
    assert choose_scrub(done) == ScrubChoice(recheck_at=done.now + HOUR)
