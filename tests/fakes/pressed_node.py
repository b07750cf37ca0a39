"""A disk that others fill as well: real planner and watermarks, and a shell that acts at once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from fakes.agent_world import a_held, an_entry, digest_of
from modelcache_agent.decide.actions import Evict, Fetch, PauseFetch, Remove, SetLabels
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import EvictionPolicy
from modelcache_agent.decide.watermarks import Pressure, Space, Watermarks, judge_pressure
from modelcache_agent.decide.world import World

TOTAL = 1000
MARKS = Watermarks(80, 75)


@dataclass
class PressedNode:
    """Transfers end within the turn in which they begin.

    `used` are contents that pods show, `asked` those that pods wait for, `kept` the protected ones.
    """

    policy: EvictionPolicy
    sizes: dict[str, int]
    capacity: int = TOTAL
    marks: Watermarks = MARKS
    foreign: int = 0
    used: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    entries: tuple[str, ...] = ()
    held: dict[str, float] = field(default_factory=dict)
    evicted: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    condemned: frozenset[str] = frozenset()
    pressure: Pressure | None = None
    now: float = 0.0
    fetches: int = 0

    @property
    def ours(self) -> int:
        return sum(self.sizes[name] for name in self.held)

    @property
    def space(self) -> Space:
        return Space(TOTAL, max(0, TOTAL - self.foreign - self.ours))

    def look(self) -> World:
        self.pressure = judge_pressure(
            self.space, self.marks, was_pressed=self.pressure is not None
        )
        held = tuple(
            a_held(name, self.sizes[name], last_used=used) for name, used in self.held.items()
        )
        entries = tuple(
            an_entry(name, self.sizes[name], evictable=name not in self.kept)
            for name in self.entries
        )
        return World(
            entries=entries,
            held=held,
            ledger=Ledger(self.capacity, {one.digest: one.blobs for one in held}),
            free_bytes=self.space.free_bytes,
            now=self.now,
            setbacks={},
            evicted=self.evicted,
            in_use=frozenset(),
            condemned=self.condemned,
            node_labels=self.labels,
            mounted=frozenset(digest_of(name) for name in self.used),
            attached=self.asked,
            pressure=self.pressure,
            kept_free_bytes=self.marks.kept_free_bytes(self.space),
        )

    def turn(self) -> bool:
        """Plan and act; True if there was something to do."""
        self.now += 1
        plan = make_plan(self.look(), self.policy)
        self.condemned = plan.condemned
        given_up = 0
        for action in plan.actions:
            match action:
                case SetLabels(keys):
                    self.labels = keys
                case Evict(digest, uids):
                    name = self.name_of(digest)
                    assert name not in self.used | self.kept, "what is used or kept stays"
                    assert self.label_of(name) not in self.labels, "the label goes first"
                    given_up += self.sizes[name]
                    del self.held[name]
                    self.evicted |= frozenset(uids)
                case Remove(digest):
                    del self.held[self.name_of(digest)]
                case Fetch(entry):
                    assert self.pressure is None, "nothing is fetched under pressure"
                    self.held[entry.uid] = self.now
                    self.evicted -= {entry.uid}
                    self.fetches += 1
                    assert judge_pressure(self.space, self.marks, was_pressed=False) is None
                case PauseFetch():
                    raise AssertionError("no transfer outlives its turn")
        self.check(given_up)
        return bool(plan.actions)

    def check(self, given_up: int) -> None:
        assert self.ours <= self.capacity
        if given_up and self.pressure is not None:
            largest = max(self.sizes.values())
            most = min(self.pressure.excess_bytes, self.pressure.round_bytes)
            assert given_up < most + largest, "a round frees no more than it must"

    def settle(self, turns: int = 200) -> None:
        """Turns until nothing is left to do, and one more, which must find nothing either."""
        for _ in range(turns):
            if not self.turn():
                break
        else:
            raise AssertionError("it never comes to rest")
        assert not self.turn(), "a plan that was carried out leaves nothing to do"
        self.check_rest()

    def check_rest(self) -> None:
        if self.pressure is not None and self.pressure.excess_bytes > 0:
            idle = self.held.keys() - self.used - self.kept - self.asked
            assert not idle, "under pressure nothing unused is left"

    def name_of(self, digest: str) -> str:
        return next(name for name in self.held if digest_of(name) == digest)

    def label_of(self, name: str) -> str:
        return an_entry(name).label_key


def play_history(seed: int, policy: EvictionPolicy, steps: int = 2) -> PressedNode:
    """A history by chance: specs, pods, foreign files."""
    chance = random.Random(seed)
    names = [f"m{number}" for number in range(5)]
    node = PressedNode(policy, {name: chance.randint(1, 300) for name in names})
    node.capacity = chance.randint(100, TOTAL)
    for _ in range(steps):
        node.entries = tuple(sorted(chance.sample(names, chance.randint(0, 5))))
        # What pods show outlives its entry; new pods come for what is assigned.
        node.used = frozenset(n for n in node.held if chance.random() < 0.3)
        node.asked = frozenset(n for n in node.entries if chance.random() < 0.3)
        node.kept = frozenset(n for n in node.entries if chance.random() < 0.2)
        node.evicted = frozenset(node.evicted & set(node.entries))
        node.foreign = chance.randint(0, TOTAL - min(TOTAL, node.ours))
        node.settle()
    return node


def replay_swaps(policy: EvictionPolicy, pods: list[str | None]) -> PressedNode:
    """Two models of which one fits, both assigned; each pod lives for some turns, None: no pod."""
    node = PressedNode(policy, {"a": 60, "b": 60}, capacity=100, entries=("a", "b"))
    for name in pods:
        node.asked = frozenset() if name is None else frozenset({name})
        node.used = frozenset()
        for _ in range(12):
            if name in node.held:
                node.used = node.asked
                node.held[name] = node.now
            node.turn()
    return node
