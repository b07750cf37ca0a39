from __future__ import annotations

from modelcache_operator.rate_limit import RateLimiter


def test_a_burst_then_the_rate_for_each_key():
    now = [0.0]
    limiter = RateLimiter(2.0, 3.0, clock=lambda: now[0])
    assert [limiter.delay("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limiter.delay("b") == 0.0
    now[0] = 0.5
    assert limiter.delay("a") == 0.0
    assert limiter.delay("a") == 0.5
    now[0] = 100.0
    assert [limiter.delay("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_only_a_bounded_number_of_keys_is_remembered():
    limiter = RateLimiter(1.0, 1.0, clock=lambda: 0.0, max_keys=2)
    for key in ("a", "b", "c"):
        assert limiter.delay(key) == 0.0
    assert limiter.delay("c") > 0
    assert limiter.delay("a") == 0.0
