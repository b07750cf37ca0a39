"""Whatever streams ask for and when: the cap holds over every window, and each gets its turn."""

from __future__ import annotations

import heapq
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from modelcache_agent.decide.bandwidth import Bandwidth, Bucket

rates = st.integers(64 << 10, 20 << 30)
# Seconds of doing something else before the next read, and how much is read then.
asks = st.tuples(st.floats(0, 0.5), st.integers(1, 8 << 20))
streams = st.lists(st.lists(asks, max_size=8), min_size=1, max_size=6)


def play(cap, stories):
    """Every stream reads what its story says, first come first served: (asked, got, bytes) each."""
    bucket, now = Bucket(cap, 0.0, 0.0), 0.0
    arrivals = [(story[0][0], number, number, 0) for number, story in enumerate(stories) if story]
    heapq.heapify(arrivals)
    left = [[amount for _, amount in story] for story in stories]
    taken = []
    while arrivals:
        asked, _, number, step = heapq.heappop(arrivals)
        now = max(now, asked)
        amount = min(left[number][step], cap.turn_bytes)
        while (pause := bucket.pause_before(amount, now)) > 0:
            now += pause
        bucket = bucket.take(amount, now)
        taken.append((asked, now, amount, number))
        left[number][step] -= amount
        ticket = len(stories) + len(taken)
        if left[number][step] > 0:
            heapq.heappush(arrivals, (now, ticket, number, step))
        elif step + 1 < len(stories[number]):
            again = now + stories[number][step + 1][0]
            heapq.heappush(arrivals, (again, ticket, number, step + 1))
        if len(taken) == 200:
            break
    return taken


@settings(deadline=None)
@given(rates, streams)
def test_no_window_holds_more_than_rate_and_burst(rate, stories):
    cap = Bandwidth(rate)
    taken = play(cap, stories)
    times = [moment for _, moment, _, _ in taken]
    sums = list(accumulate((amount for _, _, amount, _ in taken), initial=0))
    most_saved = 0.0
    for number, moment in enumerate(times):
        # The window that ends here and holds the most begins where the most had been saved.
        most_saved = max(most_saved, rate * moment - sums[number])
        assert sums[number + 1] <= rate * moment - most_saved + cap.burst_bytes + 1


@settings(deadline=None)
@given(rates, streams)
def test_nobody_waits_longer_than_one_turn_of_each_stream(rate, stories):
    cap = Bandwidth(rate)
    longest = len(stories) * (cap.turn_bytes / rate + 0.001)
    for asked, moment, _, _ in play(cap, stories):
        assert moment - asked <= longest + 1e-6


@settings(deadline=None)
@given(rates, st.integers(2, 6))
def test_streams_that_always_read_get_equal_shares(rate, count):
    cap = Bandwidth(rate)
    taken = play(cap, [[(0.0, 1 << 40)]] * count)
    shares = [sum(amount for *_, amount, who in taken if who == number) for number in range(count)]
    assert max(shares) - min(shares) <= cap.turn_bytes


@settings(deadline=None)
@given(rates)
def test_the_cap_is_reached_even_by_threads_that_wake_late(rate):
    cap, late = Bandwidth(rate), 0.03
    bucket, now, total = Bucket(cap, 0.0, 0.0), 0.0, 0
    while now < 5:
        pause = bucket.pause_before(cap.turn_bytes, now)
        if pause > 0:
            now += pause + late
            continue
        bucket = bucket.take(cap.turn_bytes, now)
        total += cap.turn_bytes
    assert total >= 0.9 * min(rate, cap.turn_bytes / late) * 5 - cap.burst_bytes
