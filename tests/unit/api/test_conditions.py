from __future__ import annotations

from datetime import UTC, datetime

import pytest

from modelcache_api.conditions import Verdict, merge_conditions, truncate
from modelcache_api.limits import MAX_MESSAGE_LENGTH
from modelcache_api.names import Condition, Reason

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
READY = Verdict(Condition.READY, True, Reason.CACHED, "2 of 2")


def merged(verdict, previous=(), now=THEN, generation=1):
    return merge_conditions(previous, [verdict], generation=generation, now=now)


CHANGES = [
    pytest.param(READY, THEN, id="nothing changed"),
    pytest.param(Verdict(Condition.READY, True, Reason.DEGRADED, "1 of 2"), THEN, id="reason"),
    pytest.param(Verdict(Condition.READY, False, Reason.EVICTED), NOW, id="status"),
    pytest.param(Verdict(Condition.READY, None, Reason.EVICTED), NOW, id="status unknown"),
    pytest.param(Verdict(Condition.STALLED, True, Reason.CACHED), NOW, id="another type"),
]


@pytest.mark.parametrize(("verdict", "expected"), CHANGES)
def test_last_transition_time_moves_only_when_the_status_flips(verdict, expected):
    (after,) = merged(verdict, merged(READY), NOW, 2)
    assert after.last_transition_time == expected
    assert after.reason == verdict.reason
    assert after.message == verdict.message
    assert after.observed_generation == 2


def test_conditions_that_nobody_decided_on_are_gone():
    before = merge_conditions(
        [], [READY, Verdict(Condition.STALLED, True, Reason.CACHED)], generation=1, now=THEN
    )
    assert [c.type for c in merged(READY, before)] == ["Ready"]


def test_long_and_hostile_messages_are_cut_and_quoted():
    (condition,) = merged(Verdict(Condition.READY, False, Reason.SOURCE_ERROR, "\x1b[31m\n" * 400))
    assert len(condition.message) == MAX_MESSAGE_LENGTH
    assert condition.message.endswith("…")
    assert condition.message.isprintable()


@pytest.mark.parametrize("length", [0, 9, 10])
def test_short_messages_stay_as_they_are(length):
    assert truncate("a" * length, 10) == "a" * length


def test_one_character_too_many():
    assert truncate("a" * 11, 10) == "a" * 9 + "…"
