"""Whatever is wanted and used: capacities are kept, labels are true, and nothing swaps for ever."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.agent_world import a_held, a_world, an_entry, digest_of
from modelcache_agent.decide.actions import Demote, Promote, SetLabels
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
        held.append(a_held(name, blobs=draw(blobs), last_used=draw(st.floats(0, 100))))
        entries.append(
            an_entry(name, evictable=draw(st.booleans())).model_copy(
                update={
                    "tier": draw(st.sampled_from([Tier.HOST, Tier.HOST, Tier.DISK])),
                    "origin": draw(st.sampled_from(EntryOrigin)),
                }
            )
        )
    digests = st.frozensets(st.sampled_from(NAMES).map(digest_of))
    return a_world(
        *sorted(entries, key=lambda entry: entry.uid),
        capacity=1000,
        held=held,
        mounted=draw(digests),
        in_use=draw(digests),
    )


class Node:
    """Carries out plans at once, and checks each step."""

    def __init__(self, world, capacity, policy):
        self.policy, self.capacity = policy, capacity
        self.locked: dict[str, frozenset[Blob]] = {}
        self.marked = frozenset()
        self.world = world

    def step(self) -> bool:
        """True if anything was done."""
        ledger = Ledger(self.capacity, versions=dict(self.locked))
        world = replace(self.world, host=HostView(ledger, marked=self.marked))
        plan = make_plan(world, self.policy)
        assert plan == make_plan(world, self.policy)
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
                assert size == sum(blob.size_bytes for blob in content.blobs - known)
                self.locked[digest] = content.blobs
                total = frozenset().union(*self.locked.values())
                assert sum(blob.size_bytes for blob in total) <= self.capacity
            case Demote(digest):
                keys = {e.label_key for e in self.world.entries if e.content_digest == digest}
                assert self.marked.isdisjoint(keys), "the label falls back first"
                del self.locked[digest]
            case _:
                raise AssertionError(action)


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
    while node.step():
        kept = {d for d in node.locked if d in world.mounted | world.in_use}
        before = set(node.locked)
        node.step()
        assert kept & before <= node.locked.keys()
