"""When it is tried again."""

from __future__ import annotations

import pytest

from fakes.agent_world import an_entry
from modelcache_agent.decide.pauses import Pause, lengthen
from modelcache_agent.decide.setbacks import make_setback
from modelcache_api.names import Reason

ENTRY = an_entry("a")


def fail(reason, previous=None, *, retry_after=5.0, jitter=0.0, entry=ENTRY):
    return make_setback(
        entry, previous, reason, "why", retry_after=retry_after, now=100.0, jitter=jitter
    )


def test_pauses_double_up_to_five_minutes():
    pauses, setback = [], None
    for _ in range(9):
        setback = fail(Reason.TRANSFER_FAILED, setback, retry_after=1.0)
        pauses.append(setback.retry_at - 100.0)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_what_the_operator_does_not_know_yet_is_asked_for_soon_and_in_the_end_each_minute():
    pauses, failed, setback = [], [], None
    for _ in range(8):
        setback = fail(Reason.NOT_KNOWN_YET, setback, retry_after=1.0)
        pauses.append(setback.retry_at - 100.0)
        failed.append(setback.is_failure)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert failed == [False] * 5 + [True] * 3
    assert 101.0 < fail(Reason.NOT_KNOWN_YET, retry_after=1.0, jitter=0.9).retry_at < 101.3


def test_a_denial_keeps_its_slow_pace():
    first = fail(Reason.GRANT_REFUSED, retry_after=60.0)
    assert first.retry_at == 160.0
    assert first.is_failure


@pytest.mark.parametrize("reason", [Reason.NOT_A_MODEL, Reason.DIGEST_MISMATCH, Reason.UNSAFE_KEY])
def test_C20_C23_wrong_content_is_tried_hourly_at_most(reason):
    assert fail(reason, retry_after=1.0).retry_at >= 100.0 + 3600


def test_what_only_a_change_can_help_is_tried_hourly():
    assert fail(Reason.SOURCE_NOT_ALLOWED, retry_after=None).retry_at == 3700.0


def test_a_server_may_ask_for_a_longer_pause():
    assert fail(Reason.THROTTLED, retry_after=120.0).retry_at == 220.0


def test_jitter_spreads_and_never_shortens():
    assert 105.0 < fail(Reason.TRANSFER_FAILED, jitter=0.9).retry_at < 107.0


def test_another_reason_or_entry_begins_anew():
    first = fail(Reason.TRANSFER_FAILED, fail(Reason.TRANSFER_FAILED))
    assert first.attempts == 2
    assert fail(Reason.THROTTLED, first).attempts == 1
    changed = an_entry("a", known=False)
    assert fail(Reason.TRANSFER_FAILED, first, entry=changed).attempts == 1


def test_a_channel_rests_longer_after_each_failure():
    pause, rests = Pause(), []
    for _ in range(8):
        pause = lengthen(pause, now=0.0, jitter=1.0, retry_after=None)
        rests.append(pause.until)
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    assert lengthen(Pause(), now=0.0, jitter=0.0, retry_after=30.0).until == 30.0
    assert not pause.is_over(59.0)
    assert pause.is_over(60.0)
