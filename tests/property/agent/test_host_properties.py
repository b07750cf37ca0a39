"""Whatever is wanted and used: capacities are kept, labels are true, and nothing swaps for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.agent_world import a_held, a_world, an_entry, digest_of
from modelcache_agent.decide.actions import Demote, Promote, SetLabels
from modelcache_agent.decide.history import History
from modelcache_agent.decide.host_world import HostView
from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES
from modelcache_api.names import EntryOrigin, Tier

NAMES = "abcdef"
blobs = st.frozensets(
    st.integers(1, 9).map(lambda number: Blob(f"b{number}", 3 * number)), min_size=1, max_size=3
)
policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)


@st.composite
def worlds(draw):
    """A node that holds everything on its disk; some of it is wanted in host memory."""
    entries, held = [], []
    for name in draw(st.sets(st.sampled_from(NAMES), min_size=1)):
        history = History(attaches=draw(st.sampled_from([0.0, 0.4, 1.0, 2.0, 7.0])))
        last_used = draw(st.floats(0, 100))
        held.append(a_held(name, blobs=draw(blobs), last_used=last_used, history=history))
        entries.append(
            an_entry(name, evictable=draw(st.sampled_from([True, True, True, False]))).model_copy(
                update={
                    "tier": draw(st.sampled_from([Tier.HOST, Tier.HOST, Tier.DISK])),
                    "origin": draw(st.sampled_from(EntryOrigin)),
                }
            )
        )
    digests = st.frozensets(st.sampled_from(NAMES).map(digest_of), max_size=1)
    return a_world(
        *sorted(entries, key=lambda entry: entry.uid),
        capacity=1000,
        held=held,
        mounted=draw(digests),
        in_use=draw(digests),
        attached=draw(st.frozensets(st.sampled_from(NAMES), max_size=1)),
        unix_now=draw(st.sampled_from([100.0, 1e6])),
    )


class Node:
    """Carries out plans at once, and checks each step."""

    def __init__(self, world, capacity, policy):
        self.policy, self.capacity = policy, capacity
        self.locked: dict[str, frozenset[Blob]] = {}
        self.marked = self.condemned = frozenset()
        self.world = world

    def step(self) -> bool:
        """True if anything was done."""
        ledger = Ledger(self.capacity, versions=dict(self.locked))
        host = HostView(ledger, marked=self.marked, condemned=self.condemned)
        world = replace(self.world, host=host)
        plan = make_plan(world, self.policy)
        assert plan == make_plan(world, self.policy)
        self.condemned = plan.host_condemned
        for action in plan.actions:
            self.apply(action)
        return bool(plan.actions)

    def apply(self, action) -> None:
        match action:
            case SetLabels(keys, in_memory):
                assert in_memory <= keys
                true = {e.label_key for e in self.world.entries if e.content_digest in self.locked}
                assert in_memory <= true, "a label says host only of what is locked"
                self.marked = in_memory
                self.world = replace(self.world, node_labels=keys)
            case Promote(digest, size):
                content = next(h for h in self.world.held if h.digest == digest)
                known = frozenset().union(*self.locked.values())
                missing = sum(blob.size_bytes for blob in content.blobs - known)
                assert size >= missing, "all of it is promised"
                self.locked[digest] = content.blobs
                total = frozenset().union(*self.locked.values())
                assert sum(blob.size_bytes for blob in total) <= self.capacity
            case Demote(digest):
                keys = {e.label_key for e in self.world.entries if e.content_digest == digest}
                assert self.marked.isdisjoint(keys), "the label falls back first"
                del self.locked[digest]
            case _:
                raise AssertionError(action)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_two_models_that_fit_one_at_a_time_do_not_swap_for_ever(policy):
    held = [a_held("a", last_used=1.0), a_held("b", last_used=2.0)]
    wanted = [
        an_entry(name, evictable=True).model_copy(update={"tier": Tier.HOST}) for name in "ab"
    ]
    node = Node(a_world(*wanted, held=held), 15, policy)
    while_at_rest = [node.step() for _ in range(12)][-3:]
    assert while_at_rest == [False] * 3
    assert len(node.locked) == 1


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(1, 60), policies)
def test_the_host_tier_comes_to_rest_within_its_capacity(world, capacity, policy):
    node = Node(world, capacity, policy)
    for _ in range(100):
        if not node.step():
            break
    else:
        raise AssertionError("two contents swap for ever")
    wanted = {e.content_digest for e in world.entries if e.tier is Tier.HOST}
    assert node.locked.keys() <= wanted
    assert node.marked == {e.label_key for e in world.entries if e.content_digest in node.locked}
    size = {held.digest: held.blobs for held in world.held}
    known = frozenset().union(*node.locked.values())
    free = capacity - sum(blob.size_bytes for blob in known)
    for digest in wanted - node.locked.keys():
        missing = sum(blob.size_bytes for blob in size[digest] - known)
        assert missing > free, "what fits is locked"


@settings(max_examples=60, deadline=None)
@given(worlds(), st.integers(1, 60), policies)
def test_what_is_mounted_or_used_is_never_displaced(world, capacity, policy):
    node = Node(world, capacity, policy)
    for _ in range(20):
        kept = node.locked.keys() & (world.mounted | world.in_use)
        node.step()
        assert kept <= node.locked.keys()
