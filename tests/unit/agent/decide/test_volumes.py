"""Which volume gets what, and what it hears."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.agent_world import a_flight, an_entry, digest_of
from modelcache_agent.decide.actions import EntryView
from modelcache_agent.decide.volumes import (
    Volume,
    count_mounts,
    find_attached,
    find_mounted,
    list_canary_pods,
    list_demands,
    make_volume_views,
    make_wishes,
)
from modelcache_api.limits import MAX_ENTRIES_PER_NODE
from modelcache_api.names import EntryState, Reason, VolumeState
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheRef

VOLUME = Volume("pod-1/models", namespace="search", asked="minilm")
SHOWN = replace(VOLUME, bound_uid="old", bound_digest=digest_of("old"), is_filled=True)
CACHES = (CacheRef(namespace="search", name="minilm", stable_uid="a"),)
ENTRY = an_entry("a", 1000).model_copy(update={"model": "org/name"})
SPEC = CacheNodeSpec(node_uid="n", entries=(ENTRY,), caches=CACHES)
CACHED = EntryView("a", EntryState.CACHED, Reason.CACHED, digest=digest_of("a"))


def view(volume=VOLUME, spec=SPEC, entry=CACHED, flights=()):
    wishes = make_wishes([volume], spec.caches if spec else ())
    return make_volume_views(wishes, spec, [entry] if entry else [], flights)[0]


def only(volume, caches=CACHES):
    return make_wishes([volume], caches)[0]


def test_a_cached_version_is_shown_to_the_pods_of_its_namespace():
    found = view()
    assert found.filling.digest == digest_of("a")
    assert found.filling.hub.folder == "models--org--name"
    assert (found.filling.uid, found.cache, found.size_bytes) == ("a", "search/minilm", 1000)


BOTH = CACHES[0].model_copy(update={"canary_uid": "b", "canary_weight": 5})


@pytest.mark.parametrize(
    ("track", "ref", "uid"),
    [
        pytest.param("", BOTH, "a", id="stable without a word"),
        pytest.param("stable", BOTH, "a", id="stable by name"),
        pytest.param("canary", BOTH, "b", id="the canary"),
        pytest.param("green", BOTH, "a", id="stable for any other word"),
        pytest.param("canary", CACHES[0], None, id="no canary here: it waits"),
    ],
)
def test_the_track_chooses_the_version(track, ref, uid):
    assert only(replace(VOLUME, track=track), (ref,)).uid == uid


def test_a_pod_of_the_canary_hears_that_there_is_none():
    found = view(replace(VOLUME, track="canary"))
    assert found.state is VolumeState.WAITING
    assert "a canary of ModelCache search/minilm" in found.message


def test_what_a_volume_shows_outlives_the_rollout():
    shown = replace(SHOWN, track="canary")
    assert only(shown).uid == "old"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (EntryState.PENDING, VolumeState.WAITING),
        (EntryState.DOWNLOADING, VolumeState.DOWNLOADING),
        (EntryState.VERIFYING, VolumeState.VERIFYING),
        (EntryState.FAILED, VolumeState.FAILED),
        (EntryState.EVICTED, VolumeState.WAITING),
    ],
)
def test_what_is_not_cached_is_told_and_not_shown(state, told):
    entry = EntryView("a", state, Reason.WAITING, "why", digest_of("a"), progress_percent=30)
    found = view(entry=entry)
    assert (found.state, found.message, found.percent) == (told, "why", 30)
    assert found.filling is None


def test_a_running_transfer_is_told_by_the_percent():
    flight = a_flight(ENTRY, verified_bytes=777)
    entry = EntryView("a", EntryState.DOWNLOADING, Reason.DOWNLOADING, progress_percent=70)
    assert view(entry=entry, flights=[flight]).percent == 77
    assert view(entry=entry, flights=[replace(flight, total_bytes=0)]).percent == 70


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"claimed_namespace": "other"}, "own namespace", id="a claimed namespace"),
        pytest.param({"asked": "other/minilm"}, "own namespace", id="another's ModelCache"),
        pytest.param({"asked": "../search/minilm"}, "own namespace", id="a path upwards"),
        pytest.param({"asked": "search/Mini_LM"}, "cannot be the name", id="no name"),
        pytest.param({"asked": "a" * 64}, "cannot be the name", id="a name that is too long"),
        pytest.param({"asked": ""}, "cannot be the name", id="nothing"),
        pytest.param({"namespace": ""}, "delete the pod", id="a damaged record"),
        pytest.param({"namespace": "Bad_Namespace"}, "delete the pod", id="no namespace"),
    ],
)
def test_a_refused_volume_gets_nothing_and_wants_nothing(changes, says):
    volume = replace(VOLUME, **changes)
    found = view(volume)
    assert (found.state, found.reason) == (VolumeState.REFUSED, Reason.VOLUME_REFUSED)
    assert says in found.message
    assert found.filling is None
    wishes = make_wishes([volume], CACHES)
    assert (find_attached(wishes), count_mounts(wishes), list_demands(wishes)) == (set(), {}, ())


def test_the_own_namespace_may_be_spelt_out():
    for changes in ({"claimed_namespace": "search"}, {"asked": "search/minilm"}):
        assert only(replace(VOLUME, **changes)).uid == "a"


def test_a_model_cache_that_is_not_here_is_waited_for_and_demanded():
    wish = only(VOLUME, ())
    assert (wish.uid, wish.refusal) == (None, None)
    found = view(spec=SPEC.model_copy(update={"caches": ()}))
    assert found.state is VolumeState.WAITING
    assert "not been told of a ModelCache search/minilm" in found.message
    assert [(key.namespace, key.name) for key in list_demands([wish])] == [("search", "minilm")]


def test_a_listed_model_cache_without_its_entry_is_waited_for():
    found = view(spec=SPEC.model_copy(update={"entries": ()}), entry=None)
    assert (found.state, found.filling) == (VolumeState.WAITING, None)


def test_without_the_operators_list_all_wait_but_those_that_show_something():
    assert "operator's list" in view(spec=None, entry=None).message
    assert view(SHOWN, spec=None, entry=None).state is VolumeState.READY


def test_what_is_shown_stays_whatever_the_model_cache_refers_to_now():
    wish = only(SHOWN)
    assert wish.uid == "old"
    assert find_mounted([wish]) == {digest_of("old")}
    assert find_attached([wish]) == frozenset()
    assert count_mounts([wish]) == {"old": 1}
    assert view(SHOWN).filling is None
    assert list_demands([wish]), "the demand lasts as long as the pod"


def test_what_was_bound_but_not_shown_is_protected_and_bound_anew():
    wish = only(replace(SHOWN, is_filled=False))
    assert (wish.uid, find_mounted([wish])) == ("a", {digest_of("old")})
    assert find_attached([wish]) == {"a"}
    assert view(replace(SHOWN, is_filled=False)).filling.digest == digest_of("a")


def test_pods_of_a_canary_are_told_with_the_version_that_each_shows_for_its_life():
    old = replace(SHOWN, key="pod-2/models", track="canary")
    new = replace(old, key="pod-1/models", bound_uid="b")
    waiting = replace(new, key="pod-3/models", is_filled=False)
    stable = replace(SHOWN, key="pod-4/models")
    told = list_canary_pods(make_wishes([old, new, waiting, stable], [BOTH]))
    assert [(row.uid, row.version) for row in told] == [("pod-1", "b"), ("pod-2", "old")]
    many = [replace(new, key=f"p{number:03d}/v") for number in range(400)]
    assert len(list_canary_pods(make_wishes(many, [BOTH]))) == MAX_ENTRIES_PER_NODE


def test_mounts_are_counted_by_version_and_demands_are_bounded_and_sorted():
    many = [replace(VOLUME, key=f"p{n}/v", asked=f"c{n:04d}") for n in range(400)]
    wishes = make_wishes([*reversed(many), VOLUME, replace(VOLUME, key="p/2")], CACHES)
    assert count_mounts(wishes) == {"a": 2}
    keys = list_demands(wishes)
    assert len(keys) == MAX_ENTRIES_PER_NODE
    assert [key.name for key in keys] == [f"c{n:04d}" for n in range(256)]
