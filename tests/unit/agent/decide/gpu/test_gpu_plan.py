"""What is loaded on the card, what makes way, and in which order labels and bytes go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.agent_world import a_held, a_world, an_entry, digest_of, key_of
from modelcache_agent.decide.actions import Evict, FreeOnDevice, LoadOnDevice, SetLabels
from modelcache_agent.decide.gpu.capacity import Budget
from modelcache_agent.decide.gpu.room import Key
from modelcache_agent.decide.gpu.world import GpuSetback, GpuView, OnDevice, find_namespaces
from modelcache_agent.decide.history import History, LoadCost
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES
from modelcache_agent.decide.report import make_status
from modelcache_agent.inputs.codec import decode, encode
from modelcache_api.names import EntryOrigin, Priority, Reason, Tier
from modelcache_api.v1alpha1.cache_node import CacheRef

NAMES = {"a": "models", "b": "models", "c": "models"}


def on_gpu(name, size=10, **changes):
    return an_entry(name, size, evictable=changes.pop("evictable", True)).model_copy(
        update={"tier": Tier.GPU, **changes}
    )


def key(name):
    return Key("models", name)


def a_gpu(*held, capacity=30, ceiling=None, attached=(), **changes) -> GpuView:
    """A card on which these contents are verified, with their labels set."""
    copies = {
        key(one.origins[0].uid): OnDevice(
            one.digest, one.size_bytes, one.origins[0].uid in attached
        )
        for one in held
    }
    names = changes.pop("marked", [one.origins[0].uid for one in held])
    return replace(
        GpuView(
            budget=Budget(capacity, ceiling or capacity, 0, False, "so much is allowed"),
            held=copies,
            needed={digest_of(name): 10 for name in NAMES},
            namespaces=NAMES,
            marked=frozenset(map(key_of, names)),
        ),
        **changes,
    )


def card_actions(plan):
    return tuple(a for a in plan.actions if isinstance(a, LoadOnDevice | FreeOnDevice))


def told(plan, uid):
    view = next(view for view in plan.entries if view.uid == uid)
    return view.reason, view.tier, view.message


A, B, C = on_gpu("a"), on_gpu("b"), on_gpu("c")
OLD, NEW, NEWEST = (a_held(name, last_used=float(at)) for at, name in enumerate("abc", 1))


def test_a_verified_version_is_loaded_and_labelled_only_then():
    plan = make_plan(a_world(A, held=[OLD], gpu=a_gpu()))
    assert plan.actions == (LoadOnDevice(key("a"), digest_of("a"), 10),)
    view = plan.entries[0]
    assert (view.state, view.reason, view.tier) == ("Cached", Reason.LOADING, None)
    assert plan.on_device == frozenset()
    loaded = make_plan(a_world(A, held=[OLD], gpu=a_gpu(OLD, marked=())))
    assert loaded.actions == (SetLabels(loaded.labels, frozenset(), frozenset({key_of("a")})),)
    assert told(loaded, "a")[:2] == (Reason.CACHED, Tier.GPU)


def test_the_label_falls_back_before_the_bytes_go_and_the_disk_follows():
    labels = frozenset({key_of("a")})
    world = a_world(held=[OLD], node_labels=labels, gpu=a_gpu(OLD))
    first = make_plan(world)
    assert first.actions == (SetLabels(frozenset()),)
    unlabelled = replace(world, node_labels=frozenset(), gpu=a_gpu(OLD, marked=()))
    assert make_plan(unlabelled).actions == (FreeOnDevice(key("a"), ""),)
    (last,) = make_plan(replace(unlabelled, gpu=a_gpu())).actions
    assert last.digest == digest_of("a")
    assert (
        card_actions(make_plan(replace(world, node_labels=None, gpu=a_gpu(OLD, marked=())))) == ()
    )


def test_a_victim_of_the_disk_leaves_the_card_first():
    held = a_held("a", 60)
    entries = (on_gpu("a", 60), an_entry("n", 50))
    world = a_world(*entries, held=[held], gpu=a_gpu(held, capacity=60))
    first = make_plan(world)
    assert not any(isinstance(action, Evict) for action in first.actions)
    freed = replace(
        world, node_labels=first.labels, condemned=first.condemned, gpu=a_gpu(held, marked=())
    )
    assert card_actions(make_plan(freed)) == (FreeOnDevice(key("a"), ""),)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, {"a"}, id="who is used least makes way"),
        pytest.param({"attached": "a"}, {"b"}, id="what a pod maps frees nothing"),
        pytest.param({"attached": "ab"}, set(), id="nobody, if pods map all of it"),
        pytest.param({"lingering_bytes": 10}, {"a", "b"}, id="what lingers is not free"),
    ],
)
def test_a_newcomer_displaces_what_is_worth_less_and_mapped_by_nobody(changes, expected):
    gpu = a_gpu(OLD, NEW, capacity=20 + changes.get("lingering_bytes", 0) // 2, **changes)
    plan = make_plan(a_world(A, B, C, held=[OLD, NEW, NEWEST], gpu=gpu))
    gone = {uid for uid in "ab" if told(plan, uid)[0] == Reason.GPU_OUT_OF_MEMORY}
    assert gone == expected
    assert plan.gpu_condemned == {key(uid) for uid in expected}
    assert (told(plan, "c")[0] == Reason.LOADING) == bool(expected)
    assert card_actions(plan) == (), "labels first"


@pytest.mark.parametrize(
    ("resident", "newcomer"),
    [
        pytest.param({"evictable": False}, {}, id="what must stay"),
        pytest.param({}, {"origin": EntryOrigin.DEMAND}, id="demand displaces no placement"),
    ],
)
def test_what_is_protected_stays_on_the_card(resident, newcomer):
    entries = on_gpu("a", **resident), on_gpu("b", **newcomer)
    plan = make_plan(a_world(*entries, held=[OLD, NEW], gpu=a_gpu(OLD, capacity=10)))
    assert told(plan, "a")[1] is Tier.GPU
    reason, _, message = told(plan, "b")
    assert reason == Reason.GPU_OUT_OF_MEMORY
    assert "10 bytes are needed, 0 are free" in message


@pytest.mark.parametrize(
    ("a", "b", "c", "gone"),
    [
        pytest.param({"priority": Priority.HIGH}, {}, {}, "b", id="the lower priority goes first"),
        pytest.param({}, {"over_quota": True}, {}, "b", id="before all, what is beyond a quota"),
        pytest.param({}, {}, {"priority": Priority.LOW}, "", id="none goes for a lower priority"),
        pytest.param({}, {}, {"over_quota": True}, "", id="none goes for what is beyond a quota"),
        pytest.param({}, {}, {}, "a", id="among equals the policy decides"),
    ],
)
def test_priority_decides_who_makes_way_on_the_card_before_the_policy(a, b, c, gone):
    entries = on_gpu("a", **a), on_gpu("b", **b), on_gpu("c", **c)
    gpu = a_gpu(OLD, NEW, capacity=20)
    plan = make_plan(a_world(*entries, held=[OLD, NEW, NEWEST], gpu=gpu))
    assert plan.gpu_condemned == {key(uid) for uid in gone}


def test_a_higher_priority_displaces_what_is_used_more_and_is_loaded_first():
    high = on_gpu("a", priority=Priority.HIGH)
    world = a_world(high, B, held=[OLD, NEW], gpu=a_gpu(NEW, capacity=10))
    assert make_plan(world).gpu_condemned == {key("b")}
    empty = replace(world, gpu=a_gpu(capacity=20))
    assert [action.key for action in card_actions(make_plan(empty))] == [key("a")]


def test_what_shares_its_bytes_with_a_higher_priority_stands_by_its_own_on_the_card():
    twin = on_gpu("b").model_copy(update={"content_digest": digest_of("a")})
    high = on_gpu("a", priority=Priority.HIGH)
    copies = {key(uid): OnDevice(digest_of("a"), 10) for uid in "ab"}
    gpu = a_gpu(capacity=20, held=copies, marked="ab")
    plan = make_plan(a_world(high, twin, C, held=[OLD, NEWEST], gpu=gpu))
    assert plan.gpu_condemned == {key("b")}


def test_pinned_copies_leave_the_card_last_when_others_take_its_memory():
    pinned = on_gpu("a", evictable=False, pinned=True)
    gpu = a_gpu(OLD, NEW, capacity=10, ceiling=30)
    world = a_world(pinned, B, held=[OLD, NEW], gpu=gpu)
    assert make_plan(world).gpu_condemned == {key("b")}


@pytest.mark.parametrize(
    ("entries", "changes", "cause"),
    [
        pytest.param((A, B, C), {}, "uid=c needs room on the card", id="for a newcomer"),
        pytest.param((A, B), {"ceiling": 30}, "so much is allowed", id="for others' use"),
    ],
)
def test_a_victim_of_the_card_is_explained_with_its_score_when_it_goes(entries, changes, cause):
    condemned = frozenset({key("a")})
    capacity = 20 if len(entries) > 2 else 10
    gpu = a_gpu(OLD, NEW, capacity=capacity, marked="b", condemned=condemned, **changes)
    plan = make_plan(a_world(*entries, held=[OLD, NEW, NEWEST][: len(entries)], gpu=gpu))
    (freed,) = (action for action in card_actions(plan) if isinstance(action, FreeOnDevice))
    assert freed.key == key("a")
    assert (freed.victim.digest, freed.victim.policy) == (digest_of("a"), "lru")
    assert (freed.victim.score, freed.victim.cause) == (1.0, cause)
    assert freed.why == str(freed.victim)


def test_what_the_source_was_like_decides_nothing_on_the_card():
    slow = History(attaches=1.0, load=LoadCost(500.0, 1e-3))
    old = a_held("a", last_used=1.0, history=slow)
    new = a_held("b", last_used=2.0, history=History(attaches=2.0))
    gpu = a_gpu(old, capacity=10, marked=(), condemned=frozenset({key("a")}))
    plan = make_plan(a_world(A, B, held=[old, new], gpu=gpu), POLICIES["value"])
    (freed,) = card_actions(plan)
    assert freed.why == (
        "policy=value score=1e-09 attaches=1.000 load_seconds=1e-08 bytes=10: "
        "uid=b needs room on the card"
    )


def test_what_nobody_wants_on_the_card_is_no_victim():
    world = a_world(an_entry("a"), held=[OLD], gpu=a_gpu(OLD, marked=()))
    (freed,) = card_actions(make_plan(world))
    assert freed.victim is None


def test_C66_a_card_that_refuses_makes_somebody_give_way_once_and_is_then_waited_for():
    refused = GpuSetback(Reason.GPU_OUT_OF_MEMORY, "in pieces", 2000.0, frozenset({key("a")}))
    gpu = a_gpu(OLD, setbacks={key("b"): refused})
    world = a_world(A, B, held=[OLD, NEW], gpu=gpu)
    assert make_plan(world).gpu_condemned == {key("a")}
    alone = replace(world, gpu=a_gpu(setbacks={key("b"): refused}))
    assert card_actions(make_plan(replace(alone, entries=(B,)))) == (
        LoadOnDevice(key("b"), digest_of("b"), 10),
    )
    again = {key("b"): replace(refused, refused_beside=None)}
    waiting = make_plan(replace(world, entries=(B,), gpu=a_gpu(setbacks=again)))
    assert (card_actions(waiting), waiting.recheck_at) == ((), 2000.0)
    assert told(waiting, "b") == (Reason.GPU_OUT_OF_MEMORY, None, "in pieces")


def test_C66_what_others_took_of_the_card_is_given_up_by_policy_but_never_from_readers():
    world = a_world(A, B, held=[OLD, NEW], gpu=a_gpu(OLD, NEW, capacity=10, ceiling=30))
    assert make_plan(world).gpu_condemned == {key("a")}
    read = make_plan(replace(world, gpu=a_gpu(OLD, NEW, capacity=0, ceiling=30, attached="ab")))
    assert read.gpu_condemned == frozenset()
    assert read.on_device == {key_of("a"), key_of("b")}


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        pytest.param(None, "GPU capacity", id="the tier is off"),
        pytest.param(
            GpuView(
                why_off="NVML: Driver/library version mismatch", marked=frozenset({key_of("a")})
            ),
            "version mismatch",
            id="C63 a driver that does not match",
        ),
    ],
)
def test_without_a_card_the_entry_says_why_and_no_label_says_gpu(gpu, words):
    plan = make_plan(a_world(A, held=[OLD], gpu=gpu))
    reason, tier, message = told(plan, "a")
    assert (reason, tier) == (Reason.GPU_UNAVAILABLE, None)
    assert words in message
    assert (plan.labels, plan.on_device) == ({key_of("a")}, frozenset())
    status = make_status(plan.entries, Ledger(100), gpu=gpu, agent_version="1")
    assert status.gpu_summary == (None if gpu is None else "unavailable")
    assert [tier.name for tier in status.tiers] == [Tier.DISK]


def test_a_version_without_tensors_is_unsuited_and_one_not_measured_yet_waits():
    world = a_world(A, held=[OLD], gpu=a_gpu(needed={digest_of("a"): 0}))
    assert told(make_plan(world), "a")[0] == Reason.GPU_UNSUITED
    unmeasured = make_plan(replace(world, gpu=a_gpu(needed={})))
    assert (told(unmeasured, "a")[0], card_actions(unmeasured)) == (Reason.LOADING, ())


def test_one_content_is_loaded_at_a_time_and_each_namespace_has_its_own():
    twin = on_gpu("b").model_copy(update={"content_digest": digest_of("a")})
    gpu = a_gpu(namespaces={"a": "one", "b": "two"})
    plan = make_plan(a_world(A, twin, held=[OLD], gpu=gpu))
    assert [action.key for action in card_actions(plan)] == [Key("one", "a")]
    loading = replace(gpu, loading={Key("one", "a"): 10})
    assert card_actions(make_plan(a_world(A, twin, held=[OLD], gpu=loading))) == ()
    half = replace(gpu, held={Key("one", "a"): OnDevice(digest_of("a"), 10)})
    second = make_plan(a_world(A, twin, held=[OLD], gpu=half))
    assert [action.key for action in card_actions(second)] == [Key("two", "b")]
    assert second.on_device == {key_of("a")}


def test_the_book_moves_in_tenths_and_names_what_emulates_a_card():
    gpu = a_gpu(OLD, capacity=57, ceiling=100, loading={key("b"): 10}, is_emulated=True)
    plan = make_plan(a_world(A, held=[OLD], gpu=gpu))
    status = make_status(plan.entries, Ledger(100), gpu=gpu, agent_version="1")
    book = status.tiers[-1]
    assert (book.name, book.capacity_bytes, book.used_bytes) == (Tier.GPU, 50, 10)
    assert book.reserved_bytes == 10
    assert status.gpu_summary == "10/50 emulated"
    assert "no card is used" in told(plan, "a")[2]


def test_what_is_seen_of_the_card_survives_the_log_of_inputs():
    gpu = a_gpu(OLD, setbacks={key("b"): GpuSetback(Reason.GPU_UNSUITED, "no", 1.0)})
    world = a_world(A, B, held=[OLD, NEW], gpu=gpu)
    again = replace(world, gpu=decode(encode(gpu)))
    assert make_plan(again) == make_plan(world)


def test_the_namespace_of_a_version_is_that_of_the_model_caches_that_name_it():
    ref = CacheRef(namespace="n", name="c", stable_uid="s", canary_uid="k", held_uids=("h",))
    assert find_namespaces([ref]) == {"s": "n", "k": "n", "h": "n"}


def test_a_copy_makes_room_for_none_of_lower_priority_however_much_that_is_used():
    urgent = on_gpu("a", priority=Priority.HIGH)
    plan = make_plan(a_world(urgent, B, held=[OLD, NEW], gpu=a_gpu(OLD, capacity=10), in_use=()))
    assert told(plan, "a")[1] is Tier.GPU
    assert told(plan, "b")[:2] == (Reason.GPU_OUT_OF_MEMORY, None)
    equal = make_plan(a_world(A, B, held=[OLD, NEW], gpu=a_gpu(OLD, capacity=10), in_use=()))
    assert told(equal, "a")[1] is None, "among equals the policy decides"
