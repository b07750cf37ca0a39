"""Which node is asked next, when the source is, and how long a silent reader is waited for."""

from __future__ import annotations

import pytest

from modelcache_agent.decide.peer_choice import (
    Choice,
    PeerView,
    Silence,
    Step,
    choose_peer,
    follow,
    is_given_up,
)

NOW = 1000.0
NEAR, FAR = PeerView("near", 0), PeerView("far", 1)
RESTING = PeerView("resting", 0, rests_until=NOW + 1)
AVOIDED = PeerView("avoided", 0, is_avoided=True)


def choose(*peers, reads=False, progress=NOW, asked=0.0, jitter=0.0):
    return choose_peer(
        peers, now=NOW, jitter=jitter, reads_source=reads, progress_at=progress, asked_at=asked
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        pytest.param(choose(FAR, NEAR), Choice(Step.PEER, "near"), id="the nearest"),
        pytest.param(choose(RESTING, FAR), Choice(Step.PEER, "far"), id="that is not resting"),
        pytest.param(
            choose(PeerView("busy", 0, in_use=1), NEAR), Choice(Step.PEER, "near"), id="least used"
        ),
        pytest.param(
            choose(NEAR, PeerView("twin", 0), jitter=0.9),
            Choice(Step.PEER, "twin"),
            id="chance decides between equals",
        ),
        pytest.param(choose(NEAR, reads=True), Choice(Step.PEER, "near"), id="even by the reader"),
        pytest.param(choose(RESTING, reads=True), Choice(Step.SOURCE), id="who waits for nobody"),
        pytest.param(choose(RESTING), Choice(Step.PAUSE), id="others are waited for"),
        pytest.param(choose(RESTING, progress=NOW - 16), Choice(Step.RENEW), id="for a while"),
        pytest.param(
            choose(RESTING, progress=NOW - 16, asked=NOW - 1),
            Choice(Step.PAUSE),
            id="asked just now",
        ),
        pytest.param(choose(AVOIDED), Choice(Step.RENEW), id="nobody is left: ask at once"),
        pytest.param(choose(AVOIDED, asked=NOW - 1), Choice(Step.PAUSE), id="but not in a circle"),
        pytest.param(
            choose(RESTING, progress=NOW - 60), Choice(Step.SOURCE), id="in vain: the source"
        ),
    ],
)
def test_the_next_part_comes_from(choice, expected):
    assert choice == expected


def test_a_reader_is_given_up_when_it_is_silent_or_stands_still():
    silent = follow(None, "a", None, NOW)
    assert not is_given_up(follow(silent, "a", None, NOW + 11), NOW + 11)
    assert is_given_up(follow(silent, "a", None, NOW + 12), NOW + 12)
    still = follow(silent, "a", 5, NOW + 5)
    assert still == Silence("a", 5, NOW + 5)
    assert not is_given_up(follow(still, "a", 5, NOW + 94), NOW + 94)
    assert is_given_up(follow(still, "a", 5, NOW + 95), NOW + 95)
    assert follow(still, "a", 6, NOW + 95) == Silence("a", 6, NOW + 95)
    assert follow(still, "b", 5, NOW + 95) == Silence("b", 5, NOW + 95)
