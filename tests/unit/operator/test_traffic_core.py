"""The weight in force on its way into an HTTPRoute, and past a gate, in the leader's core."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fakes.http_routes import CANARY, STABLE
from fakes.memory_traffic import MemoryMeasures, MemoryRoutes
from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.rollout import FirstStep, GateSpec, HttpRouteRef
from modelcache_operator.decide.rollout import Trouble
from modelcache_operator.decide.route import RuleView
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.keys import KeyKind, cache_key, route_key
from modelcache_operator.workqueue import Requeue
from unit.operator.test_rollout_core import Stage, canary_pod

C1 = ObjectKey("search", "c1")
REF = HttpRouteRef(name="embed", stable_service=STABLE, canary_service=CANARY)
GATE = GateSpec(query="errors", comparison="Below", threshold="0.01", interval="1m")
ROUTED = Condition.TRAFFIC_ROUTED


class TrafficStage(Stage):
    """With a second version, a pod of it, and what stands in for a route and for Prometheus."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = self.world.routes = MemoryRoutes(STABLE, CANARY)
        self.measures = self.world.measures = MemoryMeasures(0.0)
        self.world.add_version("m2")
        self.pod = canary_pod(self)
        self.world.show(self.pod)
        self.take_over()

    def look_at_route(self) -> None:
        self.core.queue.add(route_key(C1))
        self.core.settle()

    def ask(self) -> None:
        """A minute goes by, and the gate's query is due."""
        self.pass_time(60)
        self.core.gate_queue.add(cache_key(C1))
        self.core.settle()


@pytest.fixture
def stage():
    return TrafficStage()


def test_the_route_follows_every_step_and_every_way_back(stage):
    stage.wish("m1", http_route_ref=REF)
    stage.look_at_route()
    assert stage.said(ROUTED) == ("True", Reason.ROUTE_WEIGHTS_SET)
    assert stage.routes.writes == []
    stage.wish("m1", "m2", 50, steps=(5,), interval="10m", http_route_ref=REF)
    assert (stage.weight, stage.routes.weights) == (5, [95, 5])
    stage.pass_time(601)
    assert (stage.weight, stage.routes.weights) == (50, [50, 50])
    stage.wish("m1", "m2", 10, http_route_ref=REF)
    assert stage.routes.weights == [90, 10]
    stage.wish("m1", http_route_ref=REF)
    assert stage.routes.weights == [100, 0]
    assert stage.routes.writes == [[95, 5], [50, 50], [90, 10], [100, 0]]
    stage.take_over()
    stage.look_at_route()
    assert len(stage.routes.writes) == 4


@pytest.mark.parametrize(("on_failure", "later"), [("Hold", 5), ("Rollback", 0)])
@pytest.mark.parametrize("loss", ["gone", "not Ready", "being deleted"])
def test_no_share_goes_to_a_service_without_pods(stage, on_failure, later, loss):
    policy = {"on_failure": on_failure, "steps": (5,), "interval": "10s", "http_route_ref": REF}
    stage.world.hide(stage.pod)
    stage.wish("m1", "m2", 25, **policy)
    assert (stage.weight, stage.said()[1]) == (0, Reason.CANARY_PODS_NOT_READY)
    assert stage.routes.writes == []
    other = canary_pod(stage, "p2")
    stage.world.show(other)
    stage.core.settle()
    stage.pass_time(11)
    assert (stage.weight, stage.said()) == (25, ("True", Reason.WEIGHT_REACHED))
    assert stage.routes.weights == [75, 25]
    if loss == "gone":
        stage.world.hide(other)
    else:
        is_going = loss == "being deleted"
        stage.world.show(replace(other, is_ready=is_going, is_terminating=is_going))
    stage.core.settle()
    assert (stage.weight, stage.said()[1]) == (0, Reason.CANARY_PODS_NOT_READY)
    assert stage.routes.weights == [100, 0]
    told = [note.note for note in stage.world.events if "stable's until" in note.note]
    assert [text.endswith("until a pod of the canary is Ready again") for text in told] == (
        [True] if on_failure == "Hold" else []
    )
    stage.world.hide(other)
    stage.world.show(canary_pod(stage, "p3"))
    stage.core.settle()
    assert (stage.weight, stage.routes.weights) == (later, [100 - later, later])


@pytest.mark.parametrize(
    "reason",
    [Reason.GATEWAY_API_MISSING, Reason.ROUTE_NOT_FOUND, Reason.ROUTE_REFUSED],
)
def test_without_a_fit_route_nothing_goes_up_and_stable_is_untouched(stage, reason):
    stable = stage.holders("m1")
    stage.routes.trouble = Trouble(reason, "so it is")
    stage.wish("m1", "m2", 5, http_route_ref=REF)
    assert stage.said(ROUTED) == ("False", reason)
    assert (stage.weight, stage.said()) == (0, ("False", reason))
    assert stage.said(Condition.READY) == ("True", Reason.CACHED)
    assert stage.holders("m1") == stable
    stage.routes.trouble = None
    stage.core.router.on_route(ObjectKey("search", "embed"))
    stage.core.settle()
    assert (stage.weight, stage.routes.weights) == (5, [95, 5])
    told = [note for note in stage.world.events if note.reason == reason]
    assert {note.is_warning for note in told} == {True}


@pytest.mark.parametrize(("verb", "weight"), [("get", 0), ("patch", 5)])
def test_while_the_api_server_fails_for_the_route_nothing_is_claimed_and_nothing_goes_up(
    stage, verb, weight
):
    policy = {"steps": (5, 25), "interval": "10s", "http_route_ref": REF}
    stage.wish("m1", http_route_ref=REF)
    stage.routes.failing = {verb}
    stage.wish("m1", "m2", 50, **policy)
    assert stage.said(ROUTED) == ("Unknown", Reason.ROUTE_UNKNOWN)
    written = stage.world.writes["cache status"]
    for _ in range(5):
        stage.pass_time(11)
    assert (stage.weight, stage.said()) == (weight, ("False", Reason.ROUTE_UNKNOWN))
    assert stage.routes.failures > 5
    assert stage.world.writes["cache status"] == written, "no write for each failure"
    stage.take_over()
    assert (stage.weight, stage.said(ROUTED)[0]) == (weight, "Unknown")
    stage.routes.failing.clear()
    stage.look_at_route()
    stage.pass_time(11)
    assert stage.said(ROUTED) == ("True", Reason.ROUTE_WEIGHTS_SET)
    assert stage.weight > weight
    assert stage.routes.weights == [100 - stage.weight, stage.weight]


def test_a_route_that_was_right_is_unknown_once_it_cannot_be_read(stage):
    stage.wish("m1", "m2", 50, steps=(5,), interval="90s", http_route_ref=REF)
    assert stage.said(ROUTED) == ("True", Reason.ROUTE_WEIGHTS_SET)
    stage.routes.failing = {"get"}
    stage.core.router.look_at_routes()
    stage.core.settle()
    assert stage.said(ROUTED) == ("Unknown", Reason.ROUTE_UNKNOWN)
    stage.pass_time(100)
    assert stage.weight == 5
    stage.routes.failing.clear()
    stage.look_at_route()
    assert (stage.said(ROUTED)[0], stage.weight) == ("True", 50)
    stage.routes.failing = {"patch"}
    stage.wish("m1", http_route_ref=REF)
    assert (stage.said(ROUTED)[0], stage.routes.weights) == ("Unknown", [50, 50])
    stage.routes.failing.clear()
    stage.look_at_route()
    assert (stage.said(ROUTED)[0], stage.routes.weights) == ("True", [100, 0])


def test_where_routes_are_not_enabled_the_condition_says_so(stage):
    stage.world.routes = None
    stage.take_over()
    stage.wish("m1", "m2", 5, http_route_ref=REF)
    assert stage.said(ROUTED) == ("False", Reason.ROUTES_NOT_ENABLED)
    assert stage.weight == 0


def test_a_route_that_moves_under_the_hand_is_read_again_and_soon_given_up(stage):
    stage.wish("m1", "m2", 25, http_route_ref=REF)
    stage.routes.moves = 2
    stage.wish("m1", "m2", 10, http_route_ref=REF)
    assert stage.routes.weights == [90, 10]
    stage.routes.moves = 100
    stage.wish("m1", "m2", 0, http_route_ref=REF)
    assert stage.said(ROUTED) == ("False", Reason.ROUTE_CHANGED)
    assert stage.routes.moves == 97
    assert asyncio.run(stage.core.reconciler.routes.reconcile(C1)) == Requeue(5.0)
    stage.routes.moves = 0
    stage.look_at_route()
    assert stage.routes.weights == [100, 0]


def test_a_controller_that_reverts_is_told_of_and_not_fought(stage):
    stage.wish("m1", "m2", 25, http_route_ref=REF)
    stage.routes.writes.clear()
    for _ in range(600):
        stage.routes.put(100, 0)
        stage.look_at_route()
        stage.world.clock.seconds += 1
    assert 2 <= len(stage.routes.writes) <= 6
    assert stage.said(ROUTED) == ("False", Reason.ROUTE_CONTESTED)
    told = [note for note in stage.world.events if note.reason == Reason.ROUTE_CONTESTED]
    assert len(told) == 1
    assert "somebody-else" in told[0].note
    stage.wish("m1", "m2", 50, http_route_ref=REF)
    assert (stage.weight, stage.said()[1]) == (25, Reason.ROUTE_CONTESTED)
    stage.routes.put(75, 25)
    stage.wish("m1", http_route_ref=REF)
    assert stage.routes.weights == [100, 0]


def test_of_two_model_caches_with_the_same_backends_one_writes(stage):
    stage.wish("m1", "m2", 5, http_route_ref=REF)
    first = stage.world.cache.model_cache(C1)
    stage.world.add_cache("c2", version="m2")
    second = stage.world.cache.model_cache(ObjectKey("search", "c2"))
    spec = second.spec.model_copy(update={"rollout": first.spec.rollout})
    stage.world.show(replace(second, spec=spec))
    stage.core.settle()
    status = stage.world.cache.model_cache(ObjectKey("search", "c2")).status
    told = next(c for c in status.conditions if c.type == ROUTED)
    assert (told.status, told.reason) == ("False", Reason.ROUTE_CLAIMED)
    assert stage.routes.weights == [95, 5]
    stage.world.hide(stage.world.cache.model_cache(C1))
    stage.core.settle()
    assert stage.routes.weights == [100, 0]


def test_another_route_is_looked_at_before_anything_goes_up(stage):
    stage.wish("m1", http_route_ref=REF)
    stage.routes.trouble = Trouble(Reason.ROUTE_NOT_FOUND, "there is none")
    other = REF.model_copy(update={"canary_service": "embed-next"})
    stage.wish("m1", "m2", 5, http_route_ref=other)
    assert (stage.weight, stage.said(ROUTED)) == (0, ("False", Reason.ROUTE_NOT_FOUND))


def hold_routes(stage):
    """Whoever looks at routes hangs; returns what lets him go on."""
    add = stage.core.queue.add
    stage.core.queue.add = lambda key, **when: key.kind is KeyKind.ROUTE or add(key, **when)

    def go_on() -> None:
        stage.core.queue.add = add
        stage.look_at_route()

    return go_on


def test_another_service_of_the_same_route_is_told_of_when_it_was_looked_at(stage):
    one = stage.routes.route.rules[0].backends
    both = (*one, replace(one[1], index=2, service="embed-next"))
    stage.routes.route = replace(stage.routes.route, rules=(RuleView(both),))
    stage.wish("m1", http_route_ref=REF)
    go_on = hold_routes(stage)
    stage.wish("m1", http_route_ref=REF.model_copy(update={"canary_service": "embed-next"}))
    go_on()
    assert stage.said(ROUTED) == ("True", Reason.ROUTE_WEIGHTS_SET)


def test_no_step_is_taken_before_the_last_one_is_in_the_route(stage):
    stage.wish("m1", http_route_ref=REF)
    go_on = hold_routes(stage)
    stage.wish("m1", "m2", 50, steps=(5, 25), interval="10s", http_route_ref=REF)
    stage.pass_time(11)
    assert (stage.weight, stage.said()) == (5, ("True", Reason.STEP_TAKEN))
    go_on()
    assert (stage.weight, stage.routes.writes) == (25, [[95, 5], [75, 25]])


def test_the_weight_goes_up_only_past_the_gate_and_waits_without_a_number(stage):
    stage.measures.answer = Trouble(Reason.GATE_UNREACHABLE, "no answer")
    stage.wish("m1", "m2", 50, steps=(5,), interval="90s", gate=GATE)
    assert (stage.weight, stage.said()) == (0, ("False", Reason.GATE_UNREACHABLE))
    stage.measures.answer = 0.001
    stage.ask()
    assert stage.weight == 5
    stage.measures.answer = Trouble(Reason.GATE_NO_DATA, "no sample")
    stage.ask()
    stage.pass_time(3600)
    assert (stage.weight, stage.said()) == (5, ("False", Reason.GATE_NO_DATA))
    stage.measures.answer = 0.001
    stage.ask()
    assert (stage.weight, stage.said()[1]) == (50, Reason.WEIGHT_REACHED)
    assert set(stage.measures.asked) == {"errors"}


@pytest.mark.parametrize(("on_failure", "weight"), [("Hold", 25), ("Rollback", 0)])
def test_a_wrong_number_under_traffic_holds_the_weight_or_takes_it_back(stage, on_failure, weight):
    stage.wish("m1", "m2", 25, on_failure=on_failure, gate=GATE, http_route_ref=REF)
    assert stage.routes.weights == [75, 25]
    stage.measures.answer = 0.5
    stage.ask()
    assert (stage.weight, stage.said()) == (weight, ("False", Reason.GATE_FAILED))
    assert stage.routes.weights == [100 - weight, weight]
    stage.measures.answer = 0.0
    stage.ask()
    assert stage.weight == weight
    assert stage.reasons().count(Reason.GATE_FAILED) == 1


def test_a_first_step_that_is_free_is_taken_without_a_number_and_no_further_one_is(stage):
    free = GATE.model_copy(update={"first_step": FirstStep.FREE})
    stage.measures.answer = Trouble(Reason.GATE_NO_DATA, "no traffic yet")
    stage.wish("m1", "m2", 50, steps=(5,), interval="10s", gate=free)
    assert stage.weight == 5
    stage.ask()
    assert (stage.weight, stage.said()[1]) == (5, Reason.GATE_NO_DATA)


def test_a_number_from_before_a_step_neither_fails_the_canary_nor_takes_it_further(stage):
    free = GATE.model_copy(update={"first_step": FirstStep.FREE})
    policy = {"steps": (5, 25), "interval": "10s", "on_failure": "Rollback", "gate": free}
    stage.measures.answer = 0.5
    stage.wish("m1", "m2", 50, **policy)
    stage.pass_time(11)
    assert (stage.weight, stage.said()) == (5, ("True", Reason.STEP_TAKEN))
    stage.measures.answer = 0.001
    stage.ask()
    stage.pass_time(11)
    assert (stage.weight, stage.said()) == (25, ("True", Reason.STEP_TAKEN))
    assert stage.reasons().count(Reason.GATE_FAILED) == 0
    stage.measures.answer = 0.5
    stage.ask()
    assert (stage.weight, stage.said()) == (0, ("False", Reason.GATE_FAILED))


def test_without_a_server_the_gate_says_who_is_to_name_one(stage):
    stage.world.measures = None
    stage.take_over()
    stage.wish("m1", "m2", 5, gate=GATE)
    assert (stage.weight, stage.said()) == (0, ("False", Reason.GATE_NOT_CONFIGURED))


def test_a_new_leader_takes_no_step_before_it_has_asked_again(stage):
    stage.wish("m1", "m2", 50, steps=(5,), interval="10s", gate=GATE)
    assert stage.weight == 5
    stage.measures.answer = 0.5
    stage.take_over()
    stage.pass_time(11)
    assert stage.weight == 5


def test_nothing_is_remembered_of_a_model_cache_that_is_gone(stage):
    stage.wish("m1", "m2", 5, gate=GATE, http_route_ref=REF)
    book = stage.core.memory.traffic
    assert C1 in book.routed
    assert C1 in book.asked
    stage.world.hide(stage.world.cache.model_cache(C1))
    stage.core.settle()
    assert not book.routed
    assert not book.asked


def test_an_answer_of_the_gate_and_a_way_back_of_the_route_wait_for_nobody(stage):
    stage.wish("m1", "m2", 50, gate=GATE, http_route_ref=REF)
    stage.ask()
    assert stage.weight == 50
    urgent = stage.core.queue.urgent
    urgent.clear()
    stage.ask()
    assert cache_key(C1) in urgent
    assert route_key(C1) not in urgent
    stage.wish("m1", "m2", 10, gate=GATE, http_route_ref=REF)
    assert stage.routes.weights == [90, 10]
    assert route_key(C1) in urgent
