"""Which further versions a volume shows beside its own, and when they may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.agent_world import a_held, a_world, an_entry, digest_of, key_of
from modelcache_agent.decide.actions import EntryView, Evict, Remove
from modelcache_agent.decide.beside import (
    Beside,
    NodeFacts,
    Withdrawal,
    find_due,
    list_versions,
    note_uses,
    plan_beside,
)
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.volumes import (
    Volume,
    count_mounts,
    find_mounted,
    make_volume_views,
    make_wishes,
)
from modelcache_api.names import EntryOrigin, EntryState, Reason
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheRef
from modelcache_api.volume_progress import ShownVersion

OWN = Volume(
    "pod-1/models",
    namespace="search",
    asked="minilm",
    bound_uid="v1",
    bound_digest=digest_of("v1"),
    bound_name="minilm-v1",
    is_filled=True,
)
BOTH = CacheRef(
    namespace="search", name="minilm", stable_uid="v1", canary_uid="v2", canary_weight=5
)


def named(uid, **changes):
    return an_entry(uid, 100).model_copy(update={"name": f"minilm-{uid}", **changes})


def cached(uid, **changes):
    return replace(
        EntryView(uid, EntryState.CACHED, Reason.CACHED, digest=digest_of(uid)), **changes
    )


def beside(uid, name=None):
    return Beside(name or f"minilm-{uid}", uid, digest_of(uid))


def facts(*uids, views=(), is_unlabelled=True, **changes):
    found = {view.uid: view for view in (*map(cached, uids), *views)}
    entries = {uid: named(uid) for uid in found}
    return replace(NodeFacts(entries, found, is_unlabelled), **changes)


def test_the_canary_comes_as_soon_as_it_is_verified_and_stays_while_it_is_wanted():
    assert plan_beside(OWN, "v1", BOTH, facts("v1", "v2")).show == (beside("v2"),)
    shown = replace(OWN, beside=(beside("v2"),))
    plan = plan_beside(shown, "v1", BOTH, facts("v1", "v2"))
    assert (plan.present, plan.show, plan.hide) == ((beside("v2"),), (), ())


@pytest.mark.parametrize(
    "view",
    [
        EntryView("v2", EntryState.DOWNLOADING, Reason.DOWNLOADING),
        EntryView("v2", EntryState.VERIFYING, Reason.VERIFYING, digest=digest_of("v2")),
        EntryView("v2", EntryState.EVICTED, Reason.EVICTED, digest=digest_of("v2")),
        cached("v2", holds_back=True),
    ],
)
def test_what_is_not_verified_or_held_back_is_not_shown(view):
    assert plan_beside(OWN, "v1", BOTH, facts("v1", views=[view])).show == ()


def test_a_pod_of_the_canary_and_a_new_pod_see_what_is_stable_and_what_is_held():
    of_canary = replace(OWN, bound_uid="v2")
    assert plan_beside(of_canary, "v2", BOTH, facts("v1", "v2")).show == (beside("v1"),)
    promoted = CacheRef(namespace="search", name="minilm", stable_uid="v2", held_uids=("v1",))
    assert plan_beside(of_canary, "v2", promoted, facts("v1", "v2")).show == (beside("v1"),)
    assert plan_beside(OWN, "v1", promoted, facts("v1", "v2")).show == (beside("v2"),)


def test_before_the_operators_list_is_known_nothing_comes_and_nothing_goes():
    shown = replace(OWN, beside=(beside("v2"),))
    plan = plan_beside(shown, "v1", None, facts(is_list_known=False))
    assert (plan.present, plan.show, plan.hide) == ((beside("v2"),), (), ())


@pytest.mark.parametrize("name", [None, "", "..", "a/b", "-a", "A", "a" * 64])
def test_a_name_that_is_no_folders_is_not_shown(name):
    known = facts("v1", "v2")
    entries = dict(known.entries) | {"v2": named("v2", name=name)}
    assert plan_beside(OWN, "v1", BOTH, replace(known, entries=entries)).show == ()


def test_of_two_versions_with_one_name_the_wanted_one_is_shown_after_the_other_has_gone():
    """A ModelVersion that is made anew has its old name and another uid."""
    known = facts("v1", "v2", "old")
    entries = dict(known.entries) | {"old": named("old", name="minilm-v2")}
    known = replace(known, entries=entries)
    ref = BOTH.model_copy(update={"held_uids": ("old",)})
    assert plan_beside(OWN, "v1", ref, known).show == (beside("v2"),)
    shown = replace(OWN, beside=(beside("old", "minilm-v2"),))
    assert plan_beside(shown, "v1", BOTH, known).show == ()
    assert [one.beside.uid for one in plan_beside(shown, "v1", BOTH, known).hide] == ["old"]


@pytest.mark.parametrize(
    ("ref", "known", "has_left"),
    [
        pytest.param(None, facts("v1"), True, id="the ModelCache has left the node"),
        pytest.param(
            BOTH.model_copy(update={"canary_uid": None}),
            facts("v1", "v2"),
            True,
            id="its hold is over",
        ),
        pytest.param(BOTH, facts("v1"), True, id="its entry is gone"),
        pytest.param(
            BOTH,
            facts("v1", views=[EntryView("v2", EntryState.EVICTED, Reason.EVICTED)]),
            False,
            id="it gives way to a newcomer",
        ),
        pytest.param(
            BOTH,
            facts("v1", views=[EntryView("v2", EntryState.PENDING, Reason.DAMAGED)]),
            False,
            id="it is damaged",
        ),
    ],
)
def test_what_leaves_goes_after_its_label(ref, known, has_left):
    shown = replace(OWN, beside=(beside("v2"),), used=frozenset({"v2"}))
    plan = plan_beside(shown, "v1", ref, known)
    assert plan.hide == (Withdrawal(beside("v2"), has_left, is_used=True),)
    assert plan_beside(shown, "v1", ref, replace(known, is_unlabelled=False)).hide == ()


@pytest.mark.parametrize(
    ("has_left", "is_used", "is_urgent", "due"),
    [
        pytest.param(True, False, False, 15.0, id="nobody may have said yet that it is used"),
        pytest.param(True, True, False, 60.0, id="used, and it has left the spec"),
        pytest.param(True, True, True, 60.0, id="used, whatever the node needs"),
        pytest.param(True, False, True, float("-inf"), id="its room is needed"),
        pytest.param(False, False, False, float("-inf"), id="it gives way"),
        pytest.param(False, True, True, None, id="it would give way, but is used"),
    ],
)
def test_when_a_further_version_may_go(has_left, is_used, is_urgent, due):
    withdrawal = Withdrawal(beside("v2"), has_left, is_used, is_urgent)
    assert find_due(withdrawal, is_used=is_used, used_until=60.0, unknown_until=15.0) == due


def test_a_node_without_room_does_not_wait_for_processes_to_speak_again():
    spec = CacheNodeSpec(node_uid="n", entries=(named("v1"), named("v3")), caches=())
    wishes = make_wishes([replace(OWN, beside=(beside("v2"),))], ())
    lacks = EntryView("v3", EntryState.FAILED, Reason.INSUFFICIENT_SPACE)
    for views, is_pressed, is_urgent in (
        ([cached("v1")], False, False),
        ([cached("v1")], True, True),
        ([cached("v1"), lacks], False, True),
    ):
        (view,) = make_volume_views(
            wishes, spec, views, [], is_unlabelled=True, is_pressed=is_pressed
        )
        assert [one.is_urgent for one in view.beside.hide] == [is_urgent]


def test_what_is_hashed_again_after_a_restart_stays():
    shown = replace(OWN, beside=(beside("v2"),))
    view = EntryView("v2", EntryState.VERIFYING, Reason.VERIFYING)
    assert plan_beside(shown, "v1", BOTH, facts("v1", views=[view])).hide == ()


def test_all_versions_are_told_with_their_tracks_the_own_one_first():
    own = ShownVersion("minilm-v1", "v1", digest_of("v1"), "model")
    ref = BOTH.model_copy(update={"held_uids": ("v0",)})
    shown = (beside("v0"), beside("v2"), beside("v9"))
    told = list_versions(own, shown, ref, facts("v0", "v1", "v2"))
    assert [(one.name, one.folder, one.track, one.is_leaving) for one in told] == [
        ("minilm-v1", "model", "stable", False),
        ("minilm-v0", "versions/minilm-v0", "", False),
        ("minilm-v2", "versions/minilm-v2", "canary", False),
        ("minilm-v9", "versions/minilm-v9", "", True),
    ]
    assert [one.size_bytes for one in told] == [100, 100, 100, 0]


def test_processes_use_only_what_their_volume_shows_and_what_they_use_counts_as_mounted():
    shown = replace(OWN, beside=(beside("v2"), beside("v3")))
    used = note_uses([shown], {shown.key: frozenset({"v1", "v2", "another's"})})
    assert used[0].used == {"v2"}
    wishes = make_wishes(used, [BOTH])
    assert find_mounted(wishes) == {digest_of("v1"), digest_of("v2")}
    assert count_mounts(wishes) == {"v1": 1, "v2": 1}
    assert note_uses([shown], {})[0].used == frozenset()


def test_a_volume_that_is_about_to_be_filled_gets_all_versions_in_the_same_turn():
    new = replace(OWN, bound_uid=None, bound_digest=None, bound_name="", is_filled=False)
    spec = CacheNodeSpec(node_uid="n", entries=(named("v1"), named("v2")), caches=(BOTH,))
    wishes = make_wishes([new], spec.caches)
    view = make_volume_views(wishes, spec, [cached("v1"), cached("v2")], [], is_unlabelled=True)[0]
    assert view.filling.name == "minilm-v1"
    assert view.beside.show == (beside("v2"),)
    assert [one.name for one in view.versions] == ["minilm-v1", "minilm-v2"]


HELD = an_entry("old", 60).model_copy(
    update={"origin": EntryOrigin.HOLD, "label_key": None, "evictable": True}
)


def test_what_a_volume_still_shows_is_not_removed_even_if_no_entry_names_it():
    world = a_world(held=[a_held("old")], beside=frozenset({digest_of("old")}))
    assert make_plan(world).actions == ()
    assert make_plan(replace(world, beside=frozenset())).actions == (Remove(digest_of("old")),)


def test_what_is_shown_and_unused_makes_room_for_its_successor_and_what_is_used_does_not():
    """A volume that merely shows what is held must not block the rollout; a process may."""
    world = a_world(
        HELD,
        an_entry("new", 60),
        held=[a_held("old", 60)],
        node_labels=frozenset(),
        beside=frozenset({digest_of("old")}),
    )
    assert Evict(digest_of("old"), ()) in make_plan(world).actions
    used = replace(world, mounted=frozenset({digest_of("old")}))
    assert make_plan(used).actions == ()


NAMES = st.sampled_from(["v1", "v2", "v3", "v4"])
SUBSETS = st.frozensets(NAMES)


@given(
    own=NAMES,
    wanted=SUBSETS,
    present=SUBSETS,
    states=st.dictionaries(NAMES, st.sampled_from(list(EntryState))),
    is_unlabelled=st.booleans(),
)
def test_only_verified_versions_come_and_none_that_is_wanted_and_verified_goes(
    own, wanted, present, states, is_unlabelled
):
    ref = CacheRef(namespace="search", name="minilm", stable_uid=own, held_uids=sorted(wanted))
    views = [EntryView(u, s, Reason.CACHED, digest=digest_of(u)) for u, s in states.items()]
    volume = replace(OWN, bound_uid=own, beside=tuple(beside(u) for u in sorted(present - {own})))
    plan = plan_beside(volume, own, ref, facts(views=views, is_unlabelled=is_unlabelled))
    assert all(states[one.uid] is EntryState.CACHED for one in plan.show)
    assert {one.uid for one in plan.show} <= wanted - present - {own}
    gone = {one.beside.uid for one in plan.hide}
    assert gone <= present
    assert not {u for u in gone & wanted if states.get(u) is EntryState.CACHED}
    if not is_unlabelled:
        assert plan.hide == ()


def test_labels_are_unset_before_anything_is_hidden():
    """The same condition as for removals: the Node is known to carry only what is wanted."""
    spec = CacheNodeSpec(node_uid="n", entries=(named("v1"),), caches=())
    shown = replace(OWN, beside=(beside("v2"),))
    wishes = make_wishes([shown], ())
    for is_unlabelled, hidden in ((False, 0), (True, 1)):
        views = make_volume_views(wishes, spec, [cached("v1")], [], is_unlabelled=is_unlabelled)
        assert len(views[0].beside.hide) == hidden
    assert key_of("v2") not in make_plan(a_world(named("v1"), held=[a_held("v1")])).labels
