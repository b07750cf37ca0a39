"""One look at a rollout with anything that may be seen: who gets no share, and who gets no more."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from builders import GIB, NOW
from modelcache_api.names import Reason
from modelcache_operator.decide.canary_pods import CanaryPods
from modelcache_operator.decide.rollout import CanaryCopies, Trouble, decide_rollout
from unit.operator.decide.test_rollout import REF, facts, spec, state

COUNTS = st.integers(0, 3)
TROUBLES = st.sampled_from((None, Trouble(Reason.DAMAGED, "bits fell over")))


@st.composite
def pods(draw):
    total = draw(COUNTS)
    ready = draw(st.integers(0, total))
    return CanaryPods(total, ready, draw(st.integers(0, ready)), draw(COUNTS))


@st.composite
def looks(draw):
    """At 25 % or 0 on the way to 50 %."""
    wanted = draw(st.integers(1, 3))
    copies = CanaryCopies(wanted, draw(st.integers(0, wanted)), GIB, trouble=draw(TROUBLES))
    policy = {
        "steps": draw(st.sampled_from(((), (5, 25)))),
        "on_failure": draw(st.sampled_from(("Hold", "Rollback"))),
        "http_route_ref": draw(st.sampled_from((None, REF))),
    }
    return facts(
        spec=spec(**policy),
        stored=state(),
        stored_weight=draw(st.sampled_from((0, 25))),
        copies=copies,
        pods=draw(pods()),
        stable_ready=draw(COUNTS),
        route=draw(st.sampled_from((None, Trouble(Reason.ROUTE_UNKNOWN, "500")))),
    )


@given(looks())
def test_nobody_who_cannot_answer_gets_a_share(seen):
    weight = decide_rollout(seen, NOW).weight
    if not seen.copies.ready:
        assert weight == 0
    if seen.spec.rollout.http_route_ref is not None and not seen.pods.ready:
        assert weight == 0


@given(looks())
def test_the_weight_goes_up_only_with_every_pod_ready_and_of_this_version(seen):
    if decide_rollout(seen, NOW).weight > seen.stored_weight:
        assert seen.pods.ready == seen.pods.total
        assert seen.pods.others == 0
        assert seen.route is None
        assert seen.copies.is_resident


@given(looks())
def test_what_was_dropped_comes_back_by_the_first_step(seen):
    """Held, it begins again where it began, once everything is there."""
    dropped = decide_rollout(seen, NOW)
    if dropped.weight or dropped.state.ended is not None or not seen.stored_weight:
        return
    whole = CanaryCopies(2, 2, GIB)
    again = replace(
        seen,
        stored=dropped.state,
        stored_weight=0,
        copies=whole,
        pods=CanaryPods(1, 1),
        stable_ready=2,
        route=None,
    )
    assert decide_rollout(again, NOW).weight == (5 if seen.spec.rollout.steps else 50)
