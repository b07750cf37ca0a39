"""Whatever is wanted and mapped: a card's capacity is kept, labels are true, nothing swaps on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.agent_world import a_held, a_world, an_entry
from modelcache_agent.decide.actions import FreeOnDevice, LoadOnDevice, SetLabels
from modelcache_agent.decide.gpu.capacity import Budget
from modelcache_agent.decide.gpu.room import Key
from modelcache_agent.decide.gpu.world import GpuSetback, GpuView, OnDevice
from modelcache_agent.decide.matching import standing_of
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES
from modelcache_api.names import EntryOrigin, Priority, Reason, Tier

NAMES = "abcdef"
sizes = st.integers(1, 20)
policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)


@st.composite
def worlds(draw):
    """A node that holds everything on its disk; some of it is wanted on the card."""
    entries, held = [], []
    for name in sorted(draw(st.sets(st.sampled_from(NAMES), min_size=1))):
        held.append(a_held(name, draw(sizes), last_used=draw(st.floats(0, 100))))
        entries.append(
            an_entry(name, evictable=draw(st.sampled_from([True, True, False]))).model_copy(
                update={
                    "tier": draw(st.sampled_from([Tier.GPU, Tier.GPU, Tier.DISK])),
                    "origin": draw(st.sampled_from(EntryOrigin)),
                    "priority": draw(st.sampled_from(Priority)),
                    "over_quota": draw(st.sampled_from([False, False, True])),
                }
            )
        )
    return a_world(*entries, capacity=1000, held=held)


class Card:
    """Carries out plans at once, and checks each step. `refuses` once for each of these."""

    def __init__(self, world, capacity, policy, *, attached=(), refuses=()):
        self.world, self.policy, self.capacity = world, policy, capacity
        self.attached, self.refuses = frozenset(attached), set(refuses)
        self.held: dict[Key, OnDevice] = {}
        self.marked = frozenset()
        self.setbacks: dict[Key, GpuSetback] = {}

    def step(self) -> bool:
        """True if anything was done."""
        gpu = GpuView(
            Budget(self.capacity, max(self.capacity, 100), 0, False, "so it is"),
            held=dict(self.held),
            needed={held.digest: held.size_bytes for held in self.world.held},
            namespaces=dict.fromkeys(NAMES, "models"),
            setbacks=dict(self.setbacks),
            marked=self.marked,
        )
        world = replace(self.world, gpu=gpu)
        plan = make_plan(world, self.policy)
        assert plan == make_plan(world, self.policy)
        for action in plan.actions:
            self.apply(action)
        return bool(plan.actions)

    def apply(self, action) -> None:
        match action:
            case SetLabels(keys, _, on_device):
                here = {key.uid for key in self.held}
                true = {e.label_key for e in self.world.entries if e.uid in here}
                assert on_device <= keys & true, "a label says gpu only of what is there"
                self.marked, self.world = on_device, replace(self.world, node_labels=keys)
            case LoadOnDevice(key, digest, size) if key.uid in self.refuses:
                self.refuses.discard(key.uid)
                beside = frozenset(self.held)
                self.setbacks[key] = GpuSetback(
                    Reason.GPU_OUT_OF_MEMORY, "in pieces", self.world.now + 30, beside
                )
            case LoadOnDevice(key, digest, size):
                self.setbacks.pop(key, None)
                self.held[key] = OnDevice(digest, size, key.uid in self.attached)
                assert sum(copy.size_bytes for copy in self.held.values()) <= self.capacity
            case FreeOnDevice(key, _, victim):
                self.check_standing(key, victim)
                own = {e.label_key for e in self.world.entries if e.uid == key.uid}
                assert self.marked.isdisjoint(own), "the label falls back first"
                assert not self.held[key].is_attached, "what a pod maps is not displaced"
                del self.held[key]
            case _:
                raise AssertionError(action)

    def check_standing(self, key, victim) -> None:
        """Nobody goes for one who stands lower."""
        standing = {entry.uid: standing_of(entry) for entry in self.world.entries}
        if victim is not None and victim.cause.startswith("uid="):
            newcomer = victim.cause.removeprefix("uid=").partition(" ")[0]
            assert standing[key.uid] <= standing[newcomer]

    def settle(self) -> None:
        for _ in range(100):
            if not self.step():
                return
        raise AssertionError("two contents swap for ever")


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_two_models_that_fit_one_at_a_time_do_not_swap_for_ever(policy):
    held = [a_held("a", last_used=1.0), a_held("b", last_used=2.0)]
    wanted = [an_entry(name, evictable=True) for name in "ab"]
    wanted = [entry.model_copy(update={"tier": Tier.GPU}) for entry in wanted]
    card = Card(a_world(*wanted, held=held), 15, policy)
    card.settle()
    assert len(card.held) == 1


@settings(max_examples=100, deadline=None)
@given(
    worlds(),
    st.integers(1, 60),
    st.integers(0, 60),
    policies,
    st.sets(st.sampled_from(NAMES)),
    st.sets(st.sampled_from(NAMES), max_size=2),
)
def test_C66_the_card_comes_to_rest_within_what_others_leave(
    world, capacity, later, policy, attached, refuses
):
    card = Card(world, capacity, policy, attached=attached, refuses=refuses)
    card.settle()
    wanted = {e.uid: e.content_digest for e in world.entries if e.tier is Tier.GPU}
    assert {key.uid for key in card.held} <= wanted.keys()
    assert card.marked == {e.label_key for e in world.entries if Key("models", e.uid) in card.held}
    if not card.setbacks:
        size = {held.digest: held.size_bytes for held in world.held}
        free = capacity - sum(copy.size_bytes for copy in card.held.values())
        missing = wanted.keys() - {key.uid for key in card.held}
        assert all(size[wanted[uid]] > free for uid in missing), "what fits is loaded"
    # Others come, or go.
    card.capacity = later
    card.settle()
    spared = sum(copy.size_bytes for copy in card.held.values() if copy.is_attached)
    assert sum(copy.size_bytes for copy in card.held.values()) <= max(later, spared)
    # Nobody wants it any more, and the pods have ended.
    card.held = {key: replace(copy, is_attached=False) for key, copy in card.held.items()}
    card.world = replace(card.world, entries=(), held=())
    card.settle()
    assert (card.held, card.marked) == ({}, frozenset())
