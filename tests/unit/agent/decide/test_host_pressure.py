"""Memory is given back before the kernel acts, a part at a time, and not taken again too soon."""

from __future__ import annotations

import pytest

from modelcache_agent.decide.host_pressure import (
    CALM,
    CALM_SECONDS,
    HIGH_PERCENT,
    LOW_PERCENT,
    ROUND_PERCENT,
    ROUND_SECONDS,
    MemorySign,
    MemorySigns,
    judge_pressure,
)

TOTAL = 1000
CAPACITY = 500


def signs(available, stall=0.0):
    return MemorySigns((MemorySign("the node", available, TOTAL),), stall)


def judge(found, before=CALM, now=0.0):
    return judge_pressure(found, before, capacity_bytes=CAPACITY, now=now)


@pytest.mark.parametrize(
    ("found", "is_low"),
    [
        (signs(50), False),
        (signs(49), True),
        (signs(500, stall=19.9), False),
        (signs(500, stall=20.0), True),
        (MemorySigns((MemorySign("the node", 500, TOTAL), MemorySign("limit", 4, 100))), True),
        (MemorySigns(), False),
    ],
)
def test_low_is_a_share_of_the_memory_or_time_lost_in_waiting(found, is_low):
    pressure = judge(found)
    assert pressure.may_load is not is_low
    assert bool(pressure.free_bytes) is is_low


def test_a_round_frees_what_is_missing_to_the_high_mark_but_only_so_much():
    assert judge(signs(49)).free_bytes == CAPACITY * ROUND_PERCENT // 100
    assert judge(signs(0)).free_bytes == CAPACITY * ROUND_PERCENT // 100
    less = judge_pressure(signs(49), CALM, capacity_bytes=10_000, now=0.0)
    assert less.free_bytes == TOTAL * HIGH_PERCENT // 100 - 49


def test_between_two_rounds_nothing_goes():
    first = judge(signs(0))
    assert judge(signs(0), first, ROUND_SECONDS - 1).free_bytes == 0
    assert judge(signs(0), first, ROUND_SECONDS).free_bytes > 0


def test_between_the_marks_the_state_stays_as_it_is():
    between = signs(TOTAL * (LOW_PERCENT + HIGH_PERCENT) // 200)
    assert judge(between).may_load
    pressure = judge(between, judge(signs(0)), ROUND_SECONDS)
    assert not pressure.may_load
    assert pressure.cause == judge(signs(0)).cause, "the words stay while it lasts"


def test_only_a_calm_node_locks_again_and_a_relapse_begins_anew():
    pressure = judge(signs(0))
    calm_at = ROUND_SECONDS
    pressure = judge(signs(900), pressure, calm_at)
    assert (pressure.may_load, pressure.free_bytes) == (False, 0)
    relapsed = judge(signs(60), pressure, calm_at + CALM_SECONDS - 1)
    assert not judge(signs(900), relapsed, calm_at + CALM_SECONDS).may_load
    assert judge(signs(900), pressure, calm_at + CALM_SECONDS).may_load


def test_what_may_be_locked_leaves_the_high_mark_of_the_tightest_sign():
    two = MemorySigns((MemorySign("the node", 500, TOTAL), MemorySign("limit", 200, 400)))
    assert judge(two).room_bytes == 160
    assert judge(MemorySigns()).room_bytes is None
