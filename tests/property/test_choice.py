"""choose: stable per key, monotone in the weight, and as often as the weight says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelcache.choice import choose_track, make_weights

WEIGHTS = st.none() | st.integers(0, 100)


@given(st.text() | st.binary(), st.text(), WEIGHTS)
def test_a_key_gets_the_same_track_each_time(key, cache, weight):
    assert choose_track(key, cache, weight) == choose_track(key, cache, weight)


@given(st.text(), st.integers(0, 100), st.integers(0, 100))
def test_a_growing_weight_moves_keys_to_the_canary_only(key, one, other):
    low, high = sorted((one, other))
    if choose_track(key, "a/b", low) == "canary":
        assert choose_track(key, "a/b", high) == "canary"


@given(st.text(), st.text())
def test_the_ends_are_exact(key, cache):
    assert choose_track(key, cache, None) == choose_track(key, cache, 0) == "stable"
    assert choose_track(key, cache, 100) == "canary"


@given(st.text())
def test_text_and_its_utf8_are_one_key(key):
    encoded = key.encode(errors="surrogatepass")
    assert choose_track(key, "a/b", 50) == choose_track(encoded, "a/b", 50)


def test_the_share_of_keys_is_the_weight():
    for weight in (1, 5, 50, 99):
        chosen = [choose_track(f"key-{n}", "search/minilm", weight) for n in range(20_000)]
        assert abs(chosen.count("canary") / 200 - weight) < 1.5


def test_the_track_of_a_key_is_the_same_in_every_release():
    found = [choose_track(f"request-{n}", "search/minilm", 50) for n in range(8)]
    assert "".join(track[0] for track in found) == "csccccss"


def test_models_do_not_share_their_canaries_users():
    keys = [f"user-{n}" for n in range(2000)]
    of_one = {key for key in keys if choose_track(key, "a/one", 10) == "canary"}
    of_other = {key for key in keys if choose_track(key, "a/other", 10) == "canary"}
    assert len(of_one & of_other) < len(of_one) / 2


def test_weights_are_shares_of_a_hundred():
    assert make_weights(None) == {"stable": 100}
    assert make_weights(30) == {"stable": 70, "canary": 30}
