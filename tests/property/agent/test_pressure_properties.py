"""Whatever others do to the disk: the cache comes to rest, takes no used model, does not swap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.pressed_node import play_history, replay_swaps
from modelcache_agent.decide.policies import POLICIES

HISTORIES = 10_000


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_C54_ten_thousand_histories_come_to_rest_and_a_plan_applied_leaves_nothing(policy):
    share = HISTORIES // len(POLICIES) + 1
    first = sorted(POLICIES).index(policy) * share
    pressed = 0
    for seed in range(first, first + share):
        node = play_history(seed, POLICIES[policy])
        pressed += node.pressure is not None
    assert 0.1 < pressed / share < 0.9, "both kinds of ends are tried"


pods = st.lists(st.sampled_from(["a", "b", None]), max_size=12)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), pods)
def test_two_models_of_which_one_fits_do_not_swap_for_ever(policy, story):
    node = replay_swaps(POLICIES[policy], story)
    changes = sum(now is not None for now in story)
    assert node.fetches <= changes + 2, "each fetch has a pod that asked, but the first of each"
    node.asked = node.used = frozenset()
    node.settle()
