"""Whatever the disk holds, every policy frees enough or nothing, and nothing in vain."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.agent_world import digest_of
from modelcache_agent.decide.history import History, LoadCost
from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.policies import POLICIES
from modelcache_agent.decide.victims import choose_victims
from modelcache_agent.decide.world import Held

NAMES = [f"v{number}" for number in range(7)]
counts = st.floats(0, 1e6)
histories = st.builds(
    History,
    arrived=counts,
    attaches=counts,
    recent_attaches=counts,
    visits=st.integers(0, 1000),
    inflation=st.floats(0, 10),
    load=st.builds(LoadCost, st.floats(0, 1e3), st.floats(0, 1e-3)),
)
# Some blobs are of several contents.
blobs = st.frozensets(
    st.integers(0, 9).map(lambda number: Blob(f"b{number}", 3 * number)), max_size=4
)
contents = st.lists(
    st.builds(
        Held, st.sampled_from(NAMES).map(digest_of), blobs, last_used=counts, history=histories
    ),
    max_size=7,
    unique_by=lambda held: held.digest,
)
policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)


@settings(max_examples=300, deadline=None)
@given(policies, contents, st.data())
def test_victims_are_enough_needed_unprotected_and_always_the_same(policy, held, data):
    ledger = Ledger(1000, versions={content.digest: content.blobs for content in held})
    candidates = [content for content in held if data.draw(st.booleans())]
    needed = data.draw(st.integers(1, 100))
    digests = frozenset(content.digest for content in candidates)

    def choose(offered):
        return choose_victims(
            offered,
            needed,
            ledger=ledger,
            leaving=frozenset(),
            condemned=frozenset(),
            policy=policy,
        )

    chosen = choose(candidates)
    if chosen is None:
        assert ledger.freed_bytes(digests) < needed
        return
    victims = [ranked.held.digest for ranked in chosen]
    assert set(victims) <= digests, "only what is offered goes"
    assert ledger.freed_bytes(victims) >= needed
    for spared in victims:
        fewer = [victim for victim in victims if victim != spared]
        assert ledger.freed_bytes(fewer) < needed, "each victim is needed"
    assert choose(candidates[::-1]) == chosen


@settings(deadline=None)
@given(policies, contents, st.data())
def test_nothing_of_a_higher_standing_goes_while_those_below_it_would_do(policy, held, data):
    """Whatever the policy thinks of them."""
    ledger = Ledger(1000, versions={content.digest: content.blobs for content in held})
    standing = {content.digest: data.draw(st.integers(-1, 2)) for content in held}
    needed = data.draw(st.integers(1, 100))
    chosen = choose_victims(
        held,
        needed,
        ledger=ledger,
        leaving=frozenset(),
        condemned=frozenset(),
        policy=policy,
        standing=standing,
    )
    for victim in chosen or ():
        lower = [d for d, rank in standing.items() if rank < standing[victim.held.digest]]
        assert ledger.freed_bytes(lower) < needed
