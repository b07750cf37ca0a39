"""Contents of a card lie in one piece each: what is in pieces is moved, or costs one more."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from modelcache_agent.decide.gpu.compaction import FRAGMENTATION_THRESHOLD
from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.policies import POLICIES, find_policy
from modelcache_simulator.contents import make_content
from modelcache_simulator.levels import GPU
from modelcache_simulator.tier import FRAGMENTED, SimulatedTier, TierPlan, VirtualClock

CAPACITY = 40
FOURS = [make_content(f"m{number}", 10) for number in range(4)]
LARGE = make_content("large", 20)


def a_card(policy="lru", capacity=CAPACITY):
    plan = TierPlan(GPU, capacity, LoadCost(1.0, 0.0), True, True, is_slab=True)
    return SimulatedTier(plan, find_policy(policy), VirtualClock())


def fill(tier, *contents):
    for content in contents:
        tier._clock.now += 1
        assert tier.offer(content).reason is None
        tier.attach(content)


def test_free_memory_in_pieces_is_put_together_when_a_larger_one_comes():
    tier = a_card()
    fill(tier, *FOURS)
    for content in (FOURS[0], FOURS[2]):
        tier.release(content)
        tier.drop(content.digest)
    assert tier.slab.fragmentation == 0.5
    tier.release(FOURS[1])
    assert tier.slab.fragmentation == 0.0, "above the threshold it is put in order at once"
    assert tier.slab.moved_bytes == 10
    fill(tier, LARGE)
    assert tier.used_bytes == CAPACITY


def test_C16_what_a_pod_maps_is_not_moved_and_the_newcomer_finds_no_room():
    tier = a_card()
    fill(tier, *FOURS)
    for content in (FOURS[0], FOURS[2]):
        tier.release(content)
    offered = tier.offer(LARGE)
    assert offered == (FRAGMENTED, ())
    assert tier.used_bytes == CAPACITY, "nobody goes for who does not come"
    assert tier.slab.fragmentation == 0.0, "nothing is free"


def test_one_more_goes_where_the_policys_victims_do_not_lie_side_by_side():
    tier = a_card()
    fill(tier, *FOURS)
    for content in (FOURS[0], FOURS[2], FOURS[3]):
        tier._clock.now += 1
        tier.release(content)
    offered = tier.offer(LARGE)
    assert offered.reason is None
    assert {FOURS[0].digest, FOURS[2].digest, FOURS[3].digest} == set(offered.victims)


def test_whatever_comes_and_goes_blocks_never_overlap_and_the_book_agrees():
    contents = [make_content(f"m{number}", 3 * number + 1) for number in range(10)]
    for seed in range(150):
        rng = random.Random(seed)
        tier, attached = a_card(rng.choice(sorted(POLICIES)), capacity=64), set()
        for _ in range(40):
            tier._clock.now += 1
            content = rng.choice(contents)
            if content in attached:
                attached.discard(content)
                tier.release(content)
                continue
            if content not in tier:
                tier.offer(content)
            tier.attach(content)
            attached.add(content)
            blocks = tier.slab._arena.blocks
            assert len(blocks) == sum(other in tier for other in contents)
            assert all(a.end <= b.offset for a, b in pairwise(blocks))
            assert tier.slab._arena.used_bytes <= 64
            assert 0.0 <= tier.slab.fragmentation < 1.0
    assert FRAGMENTATION_THRESHOLD < 0.5


@pytest.mark.parametrize(
    ("policy", "requests_before", "at_most"),
    [("lru", 400, 4), ("gdsf", 400, 4), ("lfu", 400, 140), ("value", 40, 60)],
)
def test_C60_yesterdays_hot_models_leave_a_card_within_so_many_requests(
    policy, requests_before, at_most
):
    tier = a_card(policy)
    contents = [make_content(f"hot{number}", 10) for number in range(8)]

    def ask(content):
        tier._clock.now += 60
        was_there = content in tier
        if not was_there:
            tier.offer(content)
        tier.attach(content)
        tier.release(content)
        return was_there

    for number in range(requests_before):
        ask(contents[number % 4])
    missed = [not ask(contents[4 + number % 4]) for number in range(400)]
    assert sum(missed) <= at_most
    assert not any(missed[at_most:])
