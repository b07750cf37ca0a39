"""choose_version: always a version that is here, by the weight wherever that is possible."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from modelcache.choice import CANARY, STABLE, choose_track
from modelcache.resident import list_shown, pick
from modelcache_api.names import Reason, VolumeState
from modelcache_api.volume_progress import (
    ShownVersion,
    VolumeProgress,
    decode_progress,
    encode_progress,
)

NAMES = ("v1", "v2", "v3")
TRACKS = st.sampled_from([STABLE, CANARY])


@st.composite
def shown_versions(draw):
    """What a volume may show: no track twice, any of them leaving."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    tracks = draw(st.permutations([STABLE, CANARY, "", ""]))
    return tuple(
        ShownVersion(name, f"uid-{name}", "sha256:1", "model", track, 10, draw(st.booleans()))
        for name, track in zip(names, tracks, strict=False)
    )


@given(shown_versions(), TRACKS, st.none() | st.frozensets(st.sampled_from(NAMES)))
def test_a_request_always_goes_to_a_version_that_is_here(shown, track, among):
    picked = pick(shown, track, among)
    assert picked.version in shown
    loaded = [one for one in shown if among is None or one.name in among]
    if loaded:
        assert picked.version in loaded
    assert picked.is_fallback == (picked.version.track != track)


@given(shown_versions(), TRACKS, st.none() | st.frozensets(st.sampled_from(NAMES)))
def test_it_goes_where_the_weight_sends_it_if_that_is_here_and_to_stable_next(shown, track, among):
    loaded = {one.track: one for one in shown if among is None or one.name in among}
    assume(loaded)
    picked = pick(shown, track, among).version
    if track in loaded:
        assert picked == loaded[track]
    elif STABLE in loaded:
        assert picked == loaded[STABLE]


@given(st.text(), st.integers(0, 100), st.integers(0, 100), shown_versions())
def test_a_growing_weight_takes_no_key_back_whatever_is_here(key, one, other, shown):
    low, high = sorted((one, other))
    at_low = pick(shown, choose_track(key, "a/b", low)).version
    at_high = pick(shown, choose_track(key, "a/b", high)).version
    if at_low.track == CANARY:
        assert at_high == at_low


@given(shown_versions(), TRACKS)
def test_what_a_process_has_loaded_serves_it_after_the_volume_has_lost_it(shown, track):
    kept = ShownVersion("mine", "uid-mine", "sha256:9", "", is_leaving=True)
    assert pick(shown, track, {"mine"}, [kept]).version == kept
    assert pick(shown, track, None, [kept]).version in shown


def test_an_older_agent_tells_of_one_version():
    old = VolumeProgress("a/b", VolumeState.READY, Reason.CACHED, version_uid="u")
    (own,) = list_shown(old)
    assert (own.uid, own.track, own.folder) == ("u", STABLE, "model")
    assert pick([own], CANARY) == replace(pick([own], STABLE), is_fallback=True)


@given(shown_versions(), st.none() | st.integers(0, 100), st.booleans())
def test_what_a_volume_tells_is_read_as_it_was_written(shown, weight, is_draining):
    told = VolumeProgress(
        *("a/b", VolumeState.READY, Reason.CACHED),
        canary_weight=weight,
        versions=shown,
        is_draining=is_draining,
    )
    assert decode_progress(encode_progress(told)) == told
    assert list_shown(told) == shown
