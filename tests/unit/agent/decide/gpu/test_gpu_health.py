"""When a card that failed is looked at again."""

from __future__ import annotations

from modelcache_agent.decide.gpu.health import AVAILABLE, NOT_LOOKED_YET, after_failure
from modelcache_api.names import Reason


def test_C63_the_next_look_is_later_each_time_and_never_later_than_ten_minutes():
    health, now, waits = AVAILABLE, 0.0, []
    for _ in range(8):
        health = after_failure(health, "Driver/library version mismatch", now=now, jitter=1.0)
        assert (health.reason, health.message) == (
            Reason.GPU_UNAVAILABLE,
            "Driver/library version mismatch",
        )
        assert not health.is_due(health.pause.until - 1)
        assert health.is_due(health.pause.until)
        waits.append(health.pause.until - now)
        now = health.pause.until
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]


def test_a_card_is_looked_at_at_once_and_not_again_while_it_is_well():
    assert NOT_LOOKED_YET.is_due(0)
    assert not AVAILABLE.is_due(1e9)
