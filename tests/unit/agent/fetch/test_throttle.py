"""Turns under one cap, between threads."""

from __future__ import annotations

import threading

import pytest

from fakes.fetch_world import LeapingClock
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.fetch.throttle import Throttle

CAP = Bandwidth(1 << 20)


class FrozenClock(LeapingClock):
    """Time stands still: who waits for tokens waits until he is woken."""

    def monotonic(self) -> float:
        return 1000.0

    def wait(self, condition, seconds) -> None:
        condition.wait()


def in_threads(*bodies) -> list[threading.Thread]:
    threads = [threading.Thread(target=body, daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    return threads


def join(threads) -> None:
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_readers_in_parallel_share_the_cap_equally():
    clock = LeapingClock()
    throttle = Throttle(CAP, clock)
    begin = clock.monotonic()
    totals, everybody = [0] * 4, threading.Barrier(4)

    def read(number):
        everybody.wait()
        while sum(totals) < 8 << 20:
            totals[number] += throttle.take(1 << 20, lambda: False)

    join(in_threads(*(lambda number=number: read(number) for number in range(4))))
    assert clock.monotonic() - begin >= (sum(totals) - CAP.burst_bytes) / CAP.bytes_per_second
    assert max(totals) - min(totals) <= 4 * CAP.turn_bytes


def test_one_read_is_one_turn_at_most_and_never_more_than_wanted():
    throttle = Throttle(CAP, LeapingClock())
    assert throttle.take(1 << 30, lambda: False) == CAP.turn_bytes
    assert throttle.take(5, lambda: False) == 5


@pytest.mark.parametrize("first", [True, False])
def test_whose_job_was_stopped_leaves_the_queue_at_once_and_the_others_stay(first):
    throttle = Throttle(CAP, FrozenClock())
    stopped, got = threading.Event(), {}
    is_stopped = {"leaves": stopped.is_set, "stays": lambda: False}

    def wait(who):
        got[who] = throttle.take(1 << 20, is_stopped[who])

    order = ("leaves", "stays") if first else ("stays", "leaves")
    threads = {}
    for place, who in enumerate(order, 1):
        (threads[who],) = in_threads(lambda who=who: wait(who))
        while len(throttle._queue) < place:
            threads[who].join(0.001)
    stopped.set()
    throttle.wake()
    join([threads["leaves"]])
    assert got == {"leaves": 0}
    assert len(throttle._queue) == 1
    is_stopped["stays"] = lambda: True
