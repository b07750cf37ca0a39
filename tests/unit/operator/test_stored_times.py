"""Ages of times in statuses: the wall clock is asked once."""

from __future__ import annotations

from datetime import timedelta

from builders import NOW
from fakes.memory_core import MemoryClock
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.stored_times import StoredTimes

KEY = ObjectKey("search", "c1")
HOUR = timedelta(hours=1)


def make() -> tuple[MemoryClock, StoredTimes]:
    clock = MemoryClock()
    return clock, StoredTimes(clock)


def test_C62_a_step_of_the_wall_clock_changes_no_age():
    clock, times = make()
    assert times.age(KEY, "start", NOW - HOUR) == 3600
    clock.offset = -2 * HOUR
    clock.seconds += 10
    assert times.age(KEY, "start", NOW - HOUR) == 3610


def test_C62_a_time_in_the_future_is_taken_for_now():
    clock, times = make()
    assert times.age(KEY, "start", NOW + HOUR) == 0
    clock.seconds += 5
    assert times.age(KEY, "start", NOW + HOUR) == 5


def test_an_end_is_never_further_away_than_it_can_be():
    clock, times = make()
    assert times.remaining(KEY, "hold", NOW + 9 * HOUR, 3600) == 3600
    clock.seconds += 60
    assert times.remaining(KEY, "hold", NOW + 9 * HOUR, 3600) == 3540
    assert times.remaining(KEY, "other", NOW - HOUR, 3600) == -3660


def test_another_time_is_looked_at_anew_and_a_cache_that_is_gone_is_forgotten():
    clock, times = make()
    times.age(KEY, "start", NOW + HOUR)
    clock.seconds += 60
    assert times.age(KEY, "start", NOW) == 60
    times.forget(KEY)
    clock.offset = HOUR
    assert times.age(KEY, "start", NOW) == 3660
    assert times.age(KEY, "start", None) == 0
