"""Whatever is lost, late or dies: limits hold at every moment, and everybody gets his turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.slot_fleet import SlotFleet
from modelcache_api.names import EntryOrigin
from modelcache_operator.decide.fleet_limits import (
    LEAST_RATE,
    Scope,
    ScopeKind,
    ScopeName,
    list_scopes,
    parse_fleet_limits,
)
from modelcache_operator.decide.slots import Waiter, list_queue, share_bandwidth

MIB = 1 << 20
PREFIXES = ("s3://b/", "s3://b/m")
NAMESPACES = ("a", "b")

bounds = st.fixed_dictionaries(
    {},
    optional={
        "maxNodes": st.integers(1, 3),
        "maxBandwidth": st.integers(LEAST_RATE, 4 * MIB),
    },
).filter(bool)
limits = st.builds(
    lambda sources, namespaces: parse_fleet_limits(
        {
            "sources": [{"prefix": prefix, **item} for prefix, item in sources.items()],
            "namespaces": namespaces,
        }
    ),
    st.dictionaries(st.sampled_from(PREFIXES), bounds, max_size=2),
    st.dictionaries(st.sampled_from(NAMESPACES), bounds, max_size=2),
)
uris = st.sampled_from(["s3://b/m", "s3://b/other", "s3://elsewhere/m"])
models = st.lists(st.tuples(st.sampled_from(NAMESPACES), uris), min_size=1, max_size=4)
origins = st.sampled_from(list(EntryOrigin))
fates = st.sampled_from(
    [
        *({},) * 4,
        {"is_heard": False},
        {"is_answered": False},
    ]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 11), fates),
        st.tuples(st.just("ask"), st.integers(0, 11), fates),
        st.tuples(st.just("time"), st.floats(0.1, 30.0), st.none()),
        st.tuples(st.just("end"), st.integers(0, 11), st.booleans()),
        st.tuples(st.just("late"), st.integers(0, 11), st.none()),
        st.tuples(st.just("die"), st.integers(0, 11), st.none()),
        st.tuples(st.just("elect"), st.none(), st.none()),
        st.tuples(st.just("elsewhere"), st.integers(0, 11), st.none()),
    ),
    max_size=60,
)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 7), fates),
        st.tuples(st.just("ask"), st.integers(0, 7), fates),
        st.tuples(st.just("time"), st.floats(0.1, 3.0), st.none()),
        st.tuples(st.just("late"), st.integers(0, 7), st.none()),
    ),
    max_size=30,
)


@st.composite
def fleets(draw):
    fleet = SlotFleet(draw(limits))
    kinds = draw(models)
    for node in range(draw(st.integers(1, 5))):
        for number, (namespace, uri) in enumerate(kinds):
            if draw(st.booleans()):
                fleet.add(
                    f"v{number}", f"n{node}", namespace=namespace, uri=uri, origin=draw(origins)
                )
    if draw(st.booleans()):
        fleet.pass_time(fleet.limits.lease_seconds + 10)  # the leader has learnt who reads
    return fleet


def assert_limits_hold(fleet: SlotFleet) -> None:
    for name, scope in list_scopes(fleet.limits).items():
        reading = fleet.reading(name)
        nodes = {transfer.node for transfer in reading}
        assert scope.max_nodes is None or len(nodes) <= scope.max_nodes
        if scope.bytes_per_second is not None:
            assert all(transfer.rate for transfer in reading), "nobody reads unbounded"
            assert sum(transfer.rate for transfer in reading) <= scope.bytes_per_second


def play(fleet: SlotFleet, story) -> None:
    for what, argument, fate in story:
        if what == "time":
            fleet.pass_time(argument)
        elif what == "elect":
            fleet.elect()
        elif fleet.transfers:
            transfer = fleet.transfers[argument % len(fleet.transfers)]
            if what == "ask":
                fleet.ask(transfer, **fate)
            elif what == "end":
                fleet.ask(transfer, wants=False, is_heard=fate)
            elif what == "late":
                fleet.deliver_late(transfer)
            elif what == "die":  # its successor in the pod knows of no lease
                transfer.until, transfer.rate, transfer.waits_since = float("-inf"), None, None
            else:
                fleet.ask(transfer, replica=fleet.make_replica(leads=False))
        assert_limits_hold(fleet)


@settings(deadline=None, max_examples=100)
@given(fleets(), steps)
def test_no_limit_is_exceeded_at_any_moment(fleet, story):
    play(fleet, story)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("xyz"), origins), min_size=2, max_size=4), moves, steps)
def test_nor_while_shares_move_between_nodes_that_read(kinds, story, rest):
    """One limit, and all that it lets read do; half of them begin later, in the story."""
    limit = {"prefix": "s3://b/", "maxBandwidth": MIB, "maxNodes": 6}
    fleet = SlotFleet(parse_fleet_limits({"sources": [limit]}))
    for number, (uid, origin) in enumerate((*kinds, *kinds)):
        fleet.add(uid, f"n{number}", origin=origin)
    fleet.pass_time(fleet.limits.lease_seconds + 10)
    for _ in range(6):
        fleet.pass_time(3.0)
        for transfer in fleet.transfers[: len(kinds)]:
            fleet.ask(transfer)
    assert_limits_hold(fleet)
    play(fleet, [*story, *rest])


@settings(deadline=None, max_examples=60)
@given(fleets(), steps)
def test_everybody_is_admitted_in_the_end_if_others_finish(fleet, story):
    play(fleet, story)
    left = [transfer for transfer in fleet.transfers if not transfer.is_done]
    for _ in range(40 + 30 * len(left)):
        if not left:
            return
        fleet.pass_time(2.0)
        for transfer in tuple(left):
            if fleet.holds(transfer) and transfer.answer is not None:
                fleet.finish(transfer)
                left.remove(transfer)
            else:
                fleet.ask(transfer)
            assert_limits_hold(fleet)
    pytest.fail(f"{len(left)} still wait: {left[0].answer}")


SCOPE = ScopeName(ScopeKind.SOURCE, "s3://b/")
waiters = st.lists(
    st.builds(
        lambda uid, node, since, demanded: Waiter((uid, node), (SCOPE,), since, demanded),
        st.sampled_from("xyz"),
        st.sampled_from("1234567"),
        st.floats(0, 100),
        st.booleans(),
    ),
    max_size=20,
    unique_by=lambda waiter: waiter.key,
)


@given(waiters, st.integers(1, 5))
def test_no_placed_transfer_begins_while_a_demanded_one_waits_for_the_same_limit(line, most):
    queue = list_queue({SCOPE: Scope(SCOPE, max_nodes=most)}, (), line)
    assert len(queue.admitted) + len(queue.waiting) == len(line)
    if any(waiter.is_demanded for waiter, _ in queue.waiting):
        assert all(waiter.is_demanded for waiter in queue.admitted)


@given(waiters, st.integers(LEAST_RATE, 1 << 40))
def test_shares_fill_the_limit_and_are_equal_between_models_of_one_kind(line, rate):
    line = line[: rate // LEAST_RATE]
    shares = share_bandwidth(Scope(SCOPE, rate), line)
    assert shares.keys() == {waiter.key for waiter in line}
    total = sum(shares.values())
    assert total <= rate
    if not line:
        return
    assert total >= rate - 2 * len(line)
    assert min(shares.values()) >= LEAST_RATE
    by_model = {}
    for waiter in line:
        extra = shares[waiter.key] - LEAST_RATE
        model = (waiter.is_demanded, waiter.key[0])
        by_model[model] = by_model.get(model, 0) + extra
    for demanded in (True, False):
        of_kind = [total for model, total in by_model.items() if model[0] is demanded]
        assert not of_kind or max(of_kind) - min(of_kind) <= len(line)
