"""Whatever happens, plans keep their promises. The world is played by a tiny model of the shell."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.agent_world import an_entry, digest_of, key_of
from modelcache_agent.decide.actions import (
    CancelFetch,
    DropPartial,
    Evict,
    Fetch,
    PauseFetch,
    Propose,
    Remove,
    SetLabels,
    Verify,
)
from modelcache_agent.decide.history import History
from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES, EvictionPolicy
from modelcache_agent.decide.world import Flight, Held, Origin, World
from modelcache_api.names import EntryState

NAMES = [f"v{number}" for number in range(7)]
CAPACITY = 100


@dataclass
class Node:
    """What a shell would hold, and which labels the Node may carry in truth."""

    world: World
    policy: EvictionPolicy
    may_carry: frozenset[str] = frozenset()

    def plan(self):
        plan = make_plan(self.world, self.policy)
        assert {victim.digest for victim in plan.victims} == plan.condemned, "each is explained"
        self.world = replace(self.world, condemned=plan.condemned)
        return plan

    def act(self, plan, *, api_is_up: bool) -> None:
        for action in plan.actions:
            match action:
                case SetLabels(keys):
                    self.may_carry = keys if api_is_up else self.may_carry | keys
                    self.world = replace(self.world, node_labels=keys if api_is_up else None)
                case Fetch(entry):
                    self.start(entry)
                case CancelFetch(uid):
                    self.end_flight(uid)
                case PauseFetch(uid):
                    assert uid not in self.world.attached, "a pod waits for it"
                    size = self.world.ledger.reservations[uid]
                    self.end_flight(uid)
                    self.book(partials={**self.world.ledger.partials, uid: size // 2})
                case Evict(digest, uids):
                    assert digest not in (self.world.in_use or ()), "in use"
                    self.give_up(digest)
                    self.world = replace(self.world, evicted=self.world.evicted.union(uids))
                case Remove(digest):
                    self.give_up(digest)
                case DropPartial(uid):
                    self.book(partials=without(self.world.ledger.partials, uid))
                case Propose(_, digest) | Verify(digest):
                    self.confirm(digest)
        self.check()

    def start(self, entry) -> None:
        flight = Flight(entry.uid, entry.source_digest, entry.size_bytes)
        ledger = self.world.ledger.reserve(entry.uid, entry.size_bytes)
        self.world = replace(self.world, ledger=ledger, flights=(*self.world.flights, flight))

    def end_flight(self, uid) -> None:
        rest = tuple(flight for flight in self.world.flights if flight.uid != uid)
        self.world = replace(self.world, flights=rest)
        self.book(reservations=without(self.world.ledger.reservations, uid))

    def book(self, **changes) -> None:
        self.world = replace(self.world, ledger=replace(self.world.ledger, **changes))

    def arrive(self) -> None:
        """All transfers end well."""
        for flight in self.world.flights:
            blobs = frozenset({Blob(flight.uid, flight.total_bytes)})
            origin = Origin(flight.uid, flight.source_digest)
            number = float(NAMES.index(flight.uid))
            history = History(arrived=-number, attaches=number, recent_attaches=7 - number)
            held = Held(digest_of(flight.uid), blobs, number % 3, (origin,), history=history)
            self.end_flight(flight.uid)
            ledger = self.world.ledger
            self.book(
                partials=without(ledger.partials, flight.uid),
                versions={**ledger.versions, held.digest: blobs},
            )
            rest = tuple(other for other in self.world.held if other.digest != held.digest)
            self.world = replace(self.world, held=(*rest, held))
        self.check()

    def give_up(self, digest) -> None:
        world = self.world
        name = next(name for name in NAMES if digest_of(name) == digest)
        assert key_of(name) not in self.may_carry, "nothing labelled goes"
        assert digest not in world.mounted, "nothing that a pod shows goes"
        rest = tuple(held for held in world.held if held.digest != digest)
        self.world = replace(world, held=rest)
        self.book(versions=without(world.ledger.versions, digest))

    def confirm(self, digest) -> None:
        def confirmed(held):
            origins = tuple(replace(origin, adopted=True) for origin in held.origins)
            return replace(held, origins=origins, is_verified=True)

        held = tuple(
            confirmed(content) if content.digest == digest else content
            for content in self.world.held
        )
        self.world = replace(self.world, held=held)

    def check(self) -> None:
        ledger = self.world.ledger
        assert ledger.used_bytes + ledger.reserved_bytes <= CAPACITY
        assert set(ledger.reservations) == {flight.uid for flight in self.world.flights}
        assert len(ledger.reservations) <= self.world.max_models


entries = st.lists(
    st.builds(
        an_entry,
        st.sampled_from(NAMES),
        st.integers(0, 120),
        known=st.booleans(),
        evictable=st.booleans(),
    ),
    max_size=7,
    unique_by=lambda entry: entry.uid,
).map(tuple)

turns = st.lists(
    st.fixed_dictionaries(
        {
            "entries": entries,
            "api_is_up": st.booleans(),
            "mounted": st.frozensets(st.sampled_from([digest_of(name) for name in NAMES])),
            "attached": st.frozensets(st.sampled_from(NAMES)),
            "in_use": st.frozensets(st.sampled_from([digest_of(name) for name in NAMES])),
            "arrive": st.booleans(),
            "foreign_bytes": st.integers(0, 100),
        }
    ),
    max_size=8,
)


policies = st.sampled_from(sorted(POLICIES)).map(POLICIES.__getitem__)


def without(mapping, key) -> dict:
    return {name: value for name, value in mapping.items() if name != key}


def fix_sizes(spec, sizes):
    """A version never changes its size."""
    return tuple(
        entry.model_copy(update={"size_bytes": sizes.setdefault(entry.uid, entry.size_bytes)})
        for entry in spec
    )


def play(story, policy) -> Node:
    world = World((), (), Ledger(CAPACITY), CAPACITY, 0.0, setbacks={}, max_models=3)
    node = Node(world, policy)
    sizes: dict[str, int] = {}
    for turn in story:
        wanted = fix_sizes(turn["entries"], sizes)
        evicted = node.world.evicted & {entry.uid for entry in wanted}
        used = node.world.ledger.used_bytes
        free = max(0, CAPACITY - used - turn["foreign_bytes"])
        node.world = replace(
            node.world,
            entries=wanted,
            in_use=turn["in_use"],
            mounted=turn["mounted"],
            attached=turn["attached"],
            evicted=evicted,
            free_bytes=free,
        )
        node.act(node.plan(), api_is_up=turn["api_is_up"])
        if turn["arrive"]:
            node.arrive()
    return node


@settings(max_examples=300, deadline=None)
@given(turns, policies)
def test_capacity_use_and_labels_are_respected_at_every_step(story, policy):
    play(story, policy)


@settings(max_examples=200, deadline=None)
@given(turns, policies)
def test_with_the_api_server_up_and_transfers_ending_plans_run_dry(story, policy):
    node = play(story, policy)
    node.world = replace(node.world, in_use=frozenset())
    for _ in range(60):
        used = node.world.ledger.used_bytes
        node.world = replace(node.world, free_bytes=CAPACITY - used)
        plan = node.plan()
        if not plan.actions and not node.world.flights:
            break
        node.act(plan, api_is_up=True)
        node.arrive()
    assert plan.actions == (), "a plan that was carried out leaves nothing to do"
    states = {view.state for view in plan.entries}
    assert not states & {EntryState.DOWNLOADING, EntryState.VERIFYING, EntryState.PENDING}
    assert plan.labels == node.world.node_labels


@settings(max_examples=200, deadline=None)
@given(turns, policies)
def test_a_plan_is_a_function_of_the_world(story, policy):
    world = play(story, policy).world
    shuffled = replace(world, held=world.held[::-1], flights=world.flights[::-1])
    first, second = make_plan(world, policy), make_plan(shuffled, policy)
    assert first.labels == second.labels
    assert first.condemned == second.condemned
    assert first.entries == second.entries
