"""Which share of the traffic a canary takes, and why. Recomputed from what is seen. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from modelcache_api.conditions import truncate
from modelcache_api.durations import parse_duration
from modelcache_api.names import LABEL_TRACK, Reason, Track
from modelcache_api.v1alpha1.model_cache import ModelCacheSpec
from modelcache_api.v1alpha1.rollout import FirstStep, OnFailure, RolloutSpec, RolloutStatus
from modelcache_operator.decide.canary_pods import CanaryPods
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.world import Uid

DEFAULT_ROLLOUT: Final = RolloutSpec()


@dataclass(frozen=True, slots=True)
class Trouble:
    """What speaks against the canary, in one word and one sentence."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class CanaryCopies:
    """The copies of the canary on live nodes. `trouble` is that of a copy which has failed."""

    wanted: int
    ready: int
    size_bytes: int
    shortage: Shortage | None = None
    trouble: Trouble | None = None

    @property
    def is_resident(self) -> bool:
        """True if every copy that is wanted is verified."""
        return self.wanted > 0 and self.ready >= self.wanted and self.shortage is None


@dataclass(frozen=True, slots=True)
class GateOpinion:
    """What the gate by metrics has against the canary, and what it has to wait for.

    `is_old`: it was asked before the last step, and says nothing of the weight in force.
    """

    failure: Trouble | None = None
    wait: Trouble | None = None
    is_old: bool = False


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds since the times of the stored status, by a clock that never goes back."""

    since_start: float = 0.0
    since_move: float = 0.0


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """One look. `canary` is the version's UID, None while it cannot be held, as `refusal` says.

    `route` is what the HTTPRoute has against a higher weight; while it `is_route_due` it was not
    looked at for the weight in force.
    """

    spec: ModelCacheSpec
    stored: RolloutStatus | None
    stored_weight: int
    canary: Uid | None
    refusal: Trouble | None
    copies: CanaryCopies
    pods: CanaryPods
    stable_ready: int
    ages: Ages
    route: Trouble | None = None
    is_route_due: bool = False
    gate: GateOpinion = GateOpinion()


@dataclass(frozen=True, slots=True)
class RolloutVerdict:
    """The weight that is to be in force, and what is said of it.

    `state` is None while there is nothing to remember: the version is not known yet.
    `look_again` is in seconds.
    """

    weight: int
    reason: Reason
    message: str
    is_progressing: bool
    state: RolloutStatus | None
    look_again: float | None = None


def decide_rollout(facts: RolloutFacts, now: datetime) -> RolloutVerdict | None:
    """The first rule that applies; None without a canary.

    Down is always possible and at once, up only by one step, and only when everything is seen to
    be there. Nothing is remembered but what the stored status says.
    """
    if facts.spec.canary is None:
        return None
    if facts.canary is None:
        return _without_version(facts)
    state = _begin_or_go_on(facts, facts.canary, now)
    left = deadline_seconds(facts.spec)
    if state is facts.stored:
        left -= facts.ages.since_start
    weight = min(facts.stored_weight, state.aim) if _is_same_version(facts) else 0
    state = _note_copies(state, facts.copies)
    verdict = (
        _judge_ended(state)
        or _judge_deadline(facts, state, left)
        or _judge_failure(facts, state, weight)
        or _judge_reached(facts, state, weight)
        or _judge_gates(facts, state, weight)
        or _take_step(facts, state, weight, now)
    )
    if verdict.state is None or verdict.state.ended is not None:
        return verdict
    return replace(verdict, look_again=min(left, verdict.look_again or left))


def has_ended(spec: ModelCacheSpec, stored: RolloutStatus | None, canary: Uid) -> bool:
    """True if the traffic of this very wish went back to stable for good."""
    aim = spec.canary.weight if spec.canary else 0
    is_same = stored is not None and (stored.canary_uid, stored.aim) == (canary, aim)
    return is_same and stored is not None and stored.ended is not None


def next_weight(spec: ModelCacheSpec, weight: int) -> int:
    """Where the weight goes next: the first step above it, and the aim in the end."""
    aim = spec.canary.weight if spec.canary else 0
    steps = _policy(spec).steps or ()
    return min((step for step in steps if weight < step < aim), default=max(aim, 0))


def deadline_seconds(spec: ModelCacheSpec) -> float:
    """How long a canary may take traffic."""
    return float(parse_duration(_policy(spec).deadline))


def hold_seconds(spec: ModelCacheSpec) -> float:
    """How long a version that has left the spec stays."""
    return float(parse_duration(_policy(spec).hold_for))


def _policy(spec: ModelCacheSpec) -> RolloutSpec:
    return spec.rollout or DEFAULT_ROLLOUT


def _is_same_version(facts: RolloutFacts) -> bool:
    return facts.stored is not None and facts.stored.canary_uid == facts.canary


def _begin_or_go_on(facts: RolloutFacts, canary: Uid, now: datetime) -> RolloutStatus:
    """A wish is a version and a weight: whoever changes one begins anew."""
    aim, stored = _aim(facts), facts.stored
    if stored is not None and (stored.canary_uid, stored.aim) == (canary, aim):
        return stored
    moved_at = stored.moved_at if stored is not None and _is_same_version(facts) else None
    return RolloutStatus(
        canary_uid=canary,
        model_version=_name(facts),
        aim=aim,
        started_at=now,
        moved_at=moved_at,
    )


def _note_copies(state: RolloutStatus, copies: CanaryCopies) -> RolloutStatus:
    return state.model_copy(
        update={
            "copies": copies.wanted,
            "copies_ready": copies.ready,
            "extra_bytes": copies.wanted * copies.size_bytes,
        }
    )


def _without_version(facts: RolloutFacts) -> RolloutVerdict:
    """No weight on what cannot be held. A wish that had ended stays ended."""
    stored = facts.stored
    refusal = facts.refusal or Trouble(Reason.MODEL_VERSION_NOT_FOUND, "")
    if stored is not None and (stored.model_version, stored.aim) != (_name(facts), _aim(facts)):
        stored = None
    if stored is not None and (ended := _judge_ended(stored)) is not None:
        return ended
    may_end = facts.stored_weight and _policy(facts.spec).on_failure is OnFailure.ROLLBACK
    if stored is not None and may_end:
        return _end(stored, refusal.reason, _back(facts.stored_weight, refusal.message))
    state = None if stored is None else _note_copies(stored, CanaryCopies(0, 0, 0))
    return RolloutVerdict(0, refusal.reason, refusal.message, is_progressing=False, state=state)


def _aim(facts: RolloutFacts) -> int:
    return facts.spec.canary.weight if facts.spec.canary else 0


def _name(facts: RolloutFacts) -> str:
    return facts.spec.canary.model_version if facts.spec.canary else ""


def _end(state: RolloutStatus, reason: Reason, message: str) -> RolloutVerdict:
    ended = state.model_copy(update={"ended": reason.value, "ended_message": truncate(message)})
    return RolloutVerdict(0, reason, message, is_progressing=False, state=ended)


def _judge_ended(state: RolloutStatus) -> RolloutVerdict | None:
    if state.ended is None:
        return None
    known = {reason.value: reason for reason in Reason}
    reason = known.get(state.ended, Reason.CANARY_EXPIRED)
    return RolloutVerdict(0, reason, state.ended_message or "", is_progressing=False, state=state)


def _judge_deadline(
    facts: RolloutFacts, state: RolloutStatus, left: float
) -> RolloutVerdict | None:
    if left > 0:
        return None
    message = (
        f"the canary was neither promoted nor changed within {_policy(facts.spec).deadline}: all "
        "traffic is stable's again. Make it stable, or change its weight to begin anew"
    )
    return _end(state, Reason.CANARY_EXPIRED, message)


def _judge_failure(facts: RolloutFacts, state: RolloutStatus, weight: int) -> RolloutVerdict | None:
    """What goes wrong while the canary takes traffic."""
    if not weight:
        return None
    trouble = _find_failure(facts) or (None if facts.gate.is_old else facts.gate.failure)
    if trouble is None:
        return None
    if _policy(facts.spec).on_failure is OnFailure.ROLLBACK:
        return _end(state, trouble.reason, _back(weight, trouble.message))
    if (until := _find_return(facts)) is not None:
        message = f"{trouble.message}; all traffic is stable's until {until}"
        return RolloutVerdict(0, trouble.reason, message, is_progressing=False, state=state)
    message = f"held at {weight} %: {trouble.message}"
    return RolloutVerdict(weight, trouble.reason, message, is_progressing=False, state=state)


def _find_return(facts: RolloutFacts) -> str | None:
    """What must come before there is anybody to send traffic to; None while there is somebody."""
    if facts.copies.ready == 0:
        return "a copy is verified again"
    if _policy(facts.spec).http_route_ref is not None and not facts.pods.ready:
        return "a pod of the canary is Ready again"
    return None


def _back(weight: int, message: str) -> str:
    return f"taken back from {weight} % to 0: {message}. Change the canary to begin anew"


def _find_failure(facts: RolloutFacts) -> Trouble | None:
    copies, pods = facts.copies, facts.pods
    # A quota that was lowered takes nothing from the copies that are there.
    if copies.trouble is not None and copies.trouble.reason is not Reason.QUOTA_EXCEEDED:
        return copies.trouble
    if copies.ready == 0:
        return Trouble(Reason.CANARY_LOADING, "no verified copy of the canary is left")
    if pods.total and not pods.ready:
        return Trouble(*pods.describe())
    return _find_empty_service(facts)


def _find_empty_service(facts: RolloutFacts) -> Trouble | None:
    """A gateway fails the share that it sends to a Service without endpoints."""
    ref = _policy(facts.spec).http_route_ref
    if ref is None or facts.pods.total:
        return None
    message = (
        f"there is no pod of the canary, and the HTTPRoute {ref.name} would send its share to the "
        f"Service {ref.canary_service}: run at least one pod with the label "
        f"{LABEL_TRACK}: {Track.CANARY}"
    )
    return Trouble(Reason.CANARY_PODS_NOT_READY, message)


def _judge_reached(facts: RolloutFacts, state: RolloutStatus, weight: int) -> RolloutVerdict | None:
    """The aim is in force, or it has come down to it."""
    if weight < state.aim or (state.aim == 0 and not facts.copies.is_resident):
        return None
    return RolloutVerdict(
        weight, Reason.WEIGHT_REACHED, _reached(weight), is_progressing=True, state=state
    )


def _reached(weight: int) -> str:
    return f"the canary takes {weight} % of the traffic, as asked"


def _judge_gates(facts: RolloutFacts, state: RolloutStatus, weight: int) -> RolloutVerdict | None:
    """What the next step waits for. What is not there yet is no failure."""
    copies, pods = facts.copies, facts.pods
    trouble: Trouble | None = None
    is_waiting = True
    if copies.shortage is not None and copies.ready < copies.wanted:
        trouble, is_waiting = Trouble(copies.shortage.reason, copies.shortage.message), False
    elif copies.trouble is not None:
        trouble, is_waiting = copies.trouble, False
    elif not copies.is_resident:
        message = f"{copies.ready} of {copies.wanted} copies of the canary are verified"
        trouble = Trouble(Reason.CANARY_LOADING, message)
    elif not pods.are_fit:
        trouble, is_waiting = Trouble(*pods.describe()), pods.ends_by_itself
    elif (empty := _find_empty_service(facts)) is not None:
        trouble = empty
    elif facts.stable_ready < facts.spec.placement.min_ready:
        message = (
            f"stable has {facts.stable_ready} verified copies, minReady is "
            f"{facts.spec.placement.min_ready}"
        )
        trouble = Trouble(Reason.STABLE_NOT_READY, message)
    elif (outside := _find_outside(facts, weight)) is not None:
        trouble, is_waiting = outside, outside.reason is Reason.ROUTE_PENDING
    if trouble is None:
        return None
    message = f"{weight} % now; {trouble.message}"
    return RolloutVerdict(weight, trouble.reason, message, is_progressing=is_waiting, state=state)


def _find_outside(facts: RolloutFacts, weight: int) -> Trouble | None:
    """What stands outside the cluster's nodes and pods against the next step."""
    gate = _policy(facts.spec).gate
    if gate is None or (weight == 0 and gate.first_step is FirstStep.FREE):
        return facts.route
    if weight and facts.gate.is_old:
        return facts.route or facts.gate.wait
    return facts.route or facts.gate.failure or facts.gate.wait


def _take_step(
    facts: RolloutFacts, state: RolloutStatus, weight: int, now: datetime
) -> RolloutVerdict:
    to, interval = next_weight(facts.spec, weight), _policy(facts.spec).interval
    wait = 0.0
    if weight and state.moved_at is not None:
        wait = parse_duration(interval) - facts.ages.since_move
    if wait > 0:
        message = f"{weight} % now; {to} % come {interval} after the last step"
        return RolloutVerdict(
            weight, Reason.STEP_TAKEN, message, is_progressing=True, state=state, look_again=wait
        )
    if weight and (facts.gate.is_old or facts.is_route_due):
        awaited = "next answer to the gate's query" if facts.gate.is_old else "HTTPRoute's weights"
        message = f"{weight} % now; {to} % come after the {awaited}"
        return RolloutVerdict(weight, Reason.STEP_TAKEN, message, is_progressing=True, state=state)
    moved = state.model_copy(update={"moved_at": now})
    if to == state.aim:
        return RolloutVerdict(
            to, Reason.WEIGHT_REACHED, _reached(to), is_progressing=True, state=moved
        )
    message = f"{to} % now; {next_weight(facts.spec, to)} % come {interval} after the last step"
    return RolloutVerdict(
        *(to, Reason.STEP_TAKEN, message),
        is_progressing=True,
        state=moved,
        look_again=float(parse_duration(interval)),
    )
