"""Over 10,000 histories: the index proposes whom a ranking of all would choose."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.policies import POLICIES
from modelcache_agent.decide.victims import choose_victims
from modelcache_simulator.contents import make_content
from modelcache_simulator.levels import DISK
from modelcache_simulator.tier import BYPASSED, SimulatedTier, TierPlan, VirtualClock

CAPACITY = 30
CONTENTS = [make_content(f"m{number}", 3 * number + 1) for number in range(10)]
PAUSES = (0.0, 1.0, 3600.0, 400_000.0)
steps = st.lists(
    st.tuples(st.sampled_from(CONTENTS), st.booleans(), st.sampled_from(PAUSES)),
    min_size=1,
    max_size=30,
)
policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)


class Witness(SimulatedTier):
    """Chooses a second time, among all that may go and with the whole book, and compares."""

    def _find_candidates(self, missing_bytes):
        found = super()._find_candidates(missing_bytes)
        if missing_bytes > 0:
            protected = self._attached if self.plan.protects_attached else ()
            everybody = [self._look(digest) for digest in self._held if digest not in protected]
            proposed, ranked = (self._choose(some, missing_bytes) for some in (found, everybody))
            assert proposed == ranked
        return found

    def _choose(self, candidates, missing_bytes):
        versions = {digest: content.blobs for digest, content in self._held.items()}
        chosen = choose_victims(
            candidates,
            missing_bytes,
            ledger=Ledger(self.plan.capacity_bytes, versions=versions),
            leaving=frozenset(),
            condemned=frozenset(),
            policy=self._policy,
        )
        return None if chosen is None else [ranked.held.digest for ranked in chosen]


@settings(max_examples=200)
@given(policies, steps, st.booleans(), st.booleans())
def test_C60_the_index_and_the_ledger_keep_their_promises(policy, history, protects, may_bypass):
    play(policy, history, protects=protects, may_bypass=may_bypass)


def test_C60_so_do_they_in_ten_thousand_histories():
    for seed in range(10_000):
        rng = random.Random(seed)
        history = [
            (rng.choice(CONTENTS), rng.random() < 0.7, rng.choice(PAUSES)) for _ in range(15)
        ]
        policy = POLICIES[rng.choice(sorted(POLICIES))]
        try:
            play(policy, history, protects=rng.random() < 0.5, may_bypass=rng.random() < 0.5)
        except AssertionError as error:
            raise AssertionError(f"history {seed} under {policy.name}") from error


def play(policy, history, *, protects, may_bypass):
    clock = VirtualClock()
    plan = TierPlan(DISK, CAPACITY, LoadCost(3.0, 0.5), may_bypass, protects)
    tier = Witness(plan, policy, clock)
    attached = set()
    for content, is_attach, pause in history:
        clock.now += pause
        if (content in attached) == is_attach:
            continue
        if not is_attach:
            attached.discard(content)
            tier.release(content)
            continue
        offered = None if content in tier else tier.offer(content)
        tier.attach(content)
        check(tier, content, offered, attached)
        attached.add(content)


def check(tier, content, offered, attached):
    held = [other for other in CONTENTS if other in tier]
    assert sum(other.size_bytes for other in held) == tier.used_bytes <= CAPACITY
    if offered is None:
        return
    assert (offered.reason is None) == (content in tier)
    assert not offered.victims or offered.reason is None, "nobody goes for who does not come"
    if tier.plan.protects_attached:
        assert not {other.digest for other in attached} & set(offered.victims)
    if offered.reason == BYPASSED:
        assert tier.plan.may_bypass
        assert tier._policy.name == "value"
