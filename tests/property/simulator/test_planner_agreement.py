"""What a simulated disk evicts, the agent's planner would evict, seeing the same world."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.agent_world import a_world, key_of
from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES
from modelcache_agent.decide.world import Origin
from modelcache_simulator.contents import make_content
from modelcache_simulator.levels import DISK
from modelcache_simulator.tier import SimulatedTier, TierPlan, VirtualClock

CAPACITY = 30
CONTENTS = [make_content(f"m{number}", 2 * number + 1) for number in range(8)]
policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)
uses = st.lists(st.tuples(st.sampled_from(CONTENTS), st.integers(0, 100_000)), max_size=20)


def as_entry(content):
    return content.entry.model_copy(update={"label_key": key_of(content.model), "evictable": True})


def ask_planner(tier, newcomer, policy):
    """The victims of a whole plan, on a node that holds what the tier holds."""
    held = [tier._look(content.digest) for content in CONTENTS if tier.holds(content.digest)]
    origins = {
        content.digest: (Origin(content.entry.uid, content.entry.source_digest, adopted=True),)
        for content in CONTENTS
    }
    seen = [
        type(content)(
            content.digest,
            content.blobs,
            content.last_used,
            origins[content.digest],
            history=content.history,
        )
        for content in held
    ]
    entries = [
        as_entry(content)
        for content in CONTENTS
        if tier.holds(content.digest) or content is newcomer
    ]
    plan = make_plan(a_world(*entries, held=seen, capacity=CAPACITY), policy)
    return {victim.digest for victim in plan.victims}


@settings(max_examples=200)
@given(policies, uses, st.sampled_from(CONTENTS))
def test_the_planner_names_the_same_victims(policy, history, newcomer):
    clock = VirtualClock()
    plan = TierPlan(DISK, CAPACITY, LoadCost(3.0, 0.5), may_bypass=False, protects_attached=True)
    tier = SimulatedTier(plan, policy, clock)
    for content, pause in history:
        clock.now += pause
        if content not in tier:
            tier.offer(content)
        tier.attach(content)
        tier.release(content)
    if newcomer in tier:
        return
    expected = ask_planner(tier, newcomer, policy)
    assert set(tier.offer(newcomer).victims) == expected
