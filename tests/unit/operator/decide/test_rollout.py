"""Which weight is in force, and why: one look at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from builders import EARLIER, GIB, NOW, make_cache
from modelcache_api.limits import MAX_MESSAGE_LENGTH
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.rollout import CanarySpec, HttpRouteRef, RolloutSpec, RolloutStatus
from modelcache_operator.decide.canary_pods import CanaryPods
from modelcache_operator.decide.rollout import (
    Ages,
    CanaryCopies,
    RolloutFacts,
    Trouble,
    decide_rollout,
)
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.world import Uid

HERE = CanaryCopies(2, 2, GIB)
LOADING = CanaryCopies(2, 1, GIB)
GONE = CanaryCopies(2, 0, GIB)
SHORT = CanaryCopies(2, 0, GIB, shortage=Shortage(Reason.CANARY_DOES_NOT_FIT, "3 are not 2"))
BROKEN = CanaryCopies(2, 1, GIB, trouble=Trouble(Reason.DAMAGED, "bits fell over"))
HOUR = 3600.0
REF = HttpRouteRef(name="embed", stable_service="embed-stable", canary_service="embed-canary")


def spec(weight=50, min_ready=1, **policy):
    made = make_cache(copies=2, min_ready=min_ready).spec
    canary = CanarySpec(model_version="m2", weight=weight)
    return made.model_copy(update={"canary": canary, "rollout": RolloutSpec(**policy)})


def state(weight=50, **fields):
    known = {"canary_uid": "v2", "model_version": "m2", "aim": weight, "started_at": EARLIER}
    return RolloutStatus(**{**known, "moved_at": EARLIER, **fields})


def facts(**fields):
    made = RolloutFacts(
        spec=spec(),
        stored=state(),
        stored_weight=0,
        canary=Uid("v2"),
        refusal=None,
        copies=HERE,
        pods=CanaryPods(),
        stable_ready=2,
        ages=Ages(60.0, 60.0),
    )
    return replace(made, **fields)


ROLLBACK = spec(on_failure="Rollback")


@pytest.mark.parametrize(
    ("given", "weight", "reason"),
    [
        pytest.param(facts(), 50, Reason.WEIGHT_REACHED, id="without steps in one"),
        pytest.param(
            facts(spec=spec(steps=(5, 25))), 5, Reason.STEP_TAKEN, id="the first step first"
        ),
        pytest.param(
            facts(spec=spec(steps=(5, 25)), stored_weight=5, ages=Ages(400.0, 300.0)),
            25,
            Reason.STEP_TAKEN,
            id="the next one after the interval",
        ),
        pytest.param(
            facts(spec=spec(steps=(5, 25)), stored_weight=5, ages=Ages(400.0, 299.0)),
            5,
            Reason.STEP_TAKEN,
            id="and not a second before",
        ),
        pytest.param(
            facts(spec=spec(steps=(5, 60)), stored_weight=5, ages=Ages(400.0, 300.0)),
            50,
            Reason.WEIGHT_REACHED,
            id="steps above the aim are left out",
        ),
        pytest.param(
            facts(spec=spec(10), stored_weight=50, copies=LOADING),
            10,
            Reason.WEIGHT_REACHED,
            id="down at once, without a gate",
        ),
        pytest.param(facts(copies=LOADING), 0, Reason.CANARY_LOADING, id="copies are awaited"),
        pytest.param(facts(copies=SHORT), 0, Reason.CANARY_DOES_NOT_FIT, id="it does not fit"),
        pytest.param(facts(copies=BROKEN), 0, Reason.DAMAGED, id="a copy has failed before"),
        pytest.param(
            facts(pods=CanaryPods(2, 1)), 0, Reason.CANARY_PODS_NOT_READY, id="pods are awaited"
        ),
        pytest.param(
            facts(pods=CanaryPods(2, 2, others=1)),
            0,
            Reason.CANARY_PODS_NOT_READY,
            id="a pod of another version opens no gate",
        ),
        pytest.param(
            facts(stored_weight=50, pods=CanaryPods(1, 1, others=1)),
            50,
            Reason.WEIGHT_REACHED,
            id="and is no failure",
        ),
        pytest.param(
            facts(spec=spec(http_route_ref=REF), stored_weight=50, pods=CanaryPods(2, 0)),
            0,
            Reason.CANARY_PODS_NOT_READY,
            id="crashing pods behind a route take no share",
        ),
        pytest.param(
            facts(spec=spec(http_route_ref=REF), stored_weight=50, pods=CanaryPods(2, 1)),
            50,
            Reason.WEIGHT_REACHED,
            id="one of two pods behind a route does",
        ),
        pytest.param(
            facts(
                spec=spec(http_route_ref=REF), stored_weight=50, pods=CanaryPods(), copies=BROKEN
            ),
            0,
            Reason.DAMAGED,
            id="whatever else has failed",
        ),
        pytest.param(
            facts(pods=CanaryPods(2, 1, cold=1)),
            0,
            Reason.CANARY_PODS_NOT_READY,
            id="pods are being warmed up",
        ),
        pytest.param(
            facts(pods=CanaryPods(2, 1, cold=1, warm_up_failure="p1: no")),
            0,
            Reason.CANARY_WARM_UP_FAILED,
            id="the warm-up of a pod has failed",
        ),
        pytest.param(
            facts(stored_weight=50, pods=CanaryPods(1, 0, cold=1, warm_up_failure="p1: no")),
            50,
            Reason.CANARY_WARM_UP_FAILED,
            id="a failed warm-up of all pods holds the weight",
        ),
        pytest.param(
            facts(spec=spec(min_ready=2), stable_ready=1),
            0,
            Reason.STABLE_NOT_READY,
            id="stable is below minReady",
        ),
        pytest.param(
            facts(stored_weight=50, pods=CanaryPods(2, 0)),
            50,
            Reason.CANARY_PODS_NOT_READY,
            id="crashing pods hold the weight",
        ),
        pytest.param(
            facts(stored_weight=50, pods=CanaryPods(2, 1)),
            50,
            Reason.WEIGHT_REACHED,
            id="one of two pods is no failure",
        ),
        pytest.param(facts(stored_weight=50, copies=GONE), 0, Reason.CANARY_LOADING, id="lost"),
        pytest.param(
            facts(stored_weight=50, stored=state(canary_uid="v9")),
            50,
            Reason.WEIGHT_REACHED,
            id="another version begins at nothing and may go on at once",
        ),
        pytest.param(
            facts(stored_weight=50, stored=state(canary_uid="v9"), copies=LOADING),
            0,
            Reason.CANARY_LOADING,
            id="the weight of one version is never another's",
        ),
        pytest.param(
            facts(canary=None, refusal=Trouble(Reason.SOURCE_GONE, "gone"), stored_weight=50),
            0,
            Reason.SOURCE_GONE,
            id="what cannot be held gets nothing",
        ),
        pytest.param(
            facts(stored_weight=50, ages=Ages(24 * HOUR, HOUR)),
            0,
            Reason.CANARY_EXPIRED,
            id="forgotten",
        ),
    ],
)
def test_the_first_rule_that_applies(given, weight, reason):
    verdict = decide_rollout(given, NOW)
    assert (verdict.weight, verdict.reason) == (weight, reason)
    assert verdict.message


@pytest.mark.parametrize(
    "failed",
    [
        facts(spec=ROLLBACK, stored_weight=50, pods=CanaryPods(2, 0)),
        facts(spec=ROLLBACK, stored_weight=50, copies=BROKEN),
        facts(spec=ROLLBACK, stored_weight=50, copies=GONE),
        facts(
            spec=ROLLBACK,
            stored_weight=50,
            canary=None,
            refusal=Trouble(Reason.DIGEST_MISMATCH, "other bytes"),
        ),
    ],
    ids=["pods", "a broken copy", "no copy", "another digest"],
)
def test_a_rollback_is_for_good_until_the_canary_is_changed(failed):
    verdict = decide_rollout(failed, NOW)
    assert (verdict.weight, verdict.state.ended) == (0, verdict.reason)
    later = facts(spec=ROLLBACK, stored=verdict.state)
    assert decide_rollout(later, NOW).weight == 0
    gone = replace(later, canary=None, refusal=Trouble(Reason.MODEL_VERSION_NOT_FOUND, "gone"))
    assert decide_rollout(gone, NOW).reason is verdict.reason
    changed = replace(later, spec=spec(51, on_failure="Rollback"))
    assert decide_rollout(changed, NOW).weight == 51


@pytest.mark.parametrize("on_failure", ["Hold", "Rollback"])
def test_behind_a_route_no_weight_goes_up_without_a_pod_and_its_loss_is_a_failure(on_failure):
    routed = facts(spec=spec(http_route_ref=REF, on_failure=on_failure))
    before = decide_rollout(routed, NOW)
    assert (before.weight, before.reason) == (0, Reason.CANARY_PODS_NOT_READY)
    assert "embed-canary: run at least one pod with the label modelcache.io/track: canary" in (
        before.message
    )
    assert before.state.ended is None
    there = replace(routed, pods=CanaryPods(1, 1))
    assert decide_rollout(there, NOW).weight == 50
    lost = decide_rollout(replace(routed, stored_weight=50), NOW)
    assert (lost.weight, lost.reason) == (0, Reason.CANARY_PODS_NOT_READY)
    assert (lost.state.ended is not None) is (on_failure == "Rollback")


def test_a_quota_that_was_lowered_ends_no_rollout_and_takes_no_weight_but_stops_the_next_step():
    stopped = replace(BROKEN, trouble=Trouble(Reason.QUOTA_EXCEEDED, "not fetched"))
    stepwise = spec(steps=(25, 50), on_failure="Rollback")
    verdict = decide_rollout(facts(spec=stepwise, stored_weight=25, copies=stopped), NOW)
    assert (verdict.weight, verdict.reason) == (25, Reason.QUOTA_EXCEEDED)
    assert verdict.state.ended is None


def test_the_end_is_told_in_a_sentence_that_the_api_takes():
    failed = replace(BROKEN, trouble=Trouble(Reason.DAMAGED, "x" * MAX_MESSAGE_LENGTH))
    made = decide_rollout(facts(spec=ROLLBACK, stored_weight=5, copies=failed), NOW)
    assert made.state.ended == Reason.DAMAGED
    assert RolloutStatus.model_validate(made.state.model_dump()) == made.state


def test_without_a_canary_nothing_is_decided():
    assert decide_rollout(facts(spec=make_cache().spec), NOW) is None


def test_a_wish_that_is_raised_counts_anew_and_keeps_the_pause_between_steps():
    raised = facts(spec=spec(60), stored=state(5), stored_weight=5, ages=Ages(HOUR, 299.0))
    verdict = decide_rollout(raised, NOW)
    assert (verdict.weight, verdict.state.aim) == (5, 60)
    assert (verdict.state.started_at, verdict.state.moved_at) == (NOW, EARLIER)
    assert verdict.look_again == pytest.approx(1.0)


def test_equal_facts_say_the_same_at_any_time():
    for given in (facts(stored_weight=50), facts(copies=LOADING), facts(copies=SHORT)):
        first = decide_rollout(given, NOW)
        again = replace(given, stored=first.state)
        assert decide_rollout(again, NOW + timedelta(hours=1)) == first


def test_the_extra_bytes_are_stated():
    verdict = decide_rollout(facts(copies=LOADING), NOW)
    assert (verdict.state.copies, verdict.state.copies_ready) == (2, 1)
    assert verdict.state.extra_bytes == 2 * GIB
