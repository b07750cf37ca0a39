"""The status of a ModelCache, computed whole from what live nodes report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from modelcache_api.conditions import Verdict, merge_conditions, truncate
from modelcache_api.limits import MAX_FAILURES_SHOWN
from modelcache_api.names import Condition, EntryState, Reason, Tier, Track
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.model_cache import (
    CopiesStatus,
    Failure,
    ModelCacheStatus,
    TrackStatus,
)
from modelcache_api.v1alpha1.rollout import HeldVersion, TrafficStatus
from modelcache_operator.decide.copies import Copy, CopyTally
from modelcache_operator.decide.rollout import RolloutVerdict, Trouble
from modelcache_operator.decide.route import RouteVerdict
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.withdrawal import describe_withdrawal
from modelcache_operator.decide.world import ModelCacheView, ModelVersionView

_GIVEN_UP: Final = "given up, for others or on request"
_REASON_OF_STATE: Final = {
    EntryState.PENDING: Reason.WAITING,
    EntryState.DOWNLOADING: Reason.DOWNLOADING,
    EntryState.VERIFYING: Reason.VERIFYING,
}


@dataclass(frozen=True, slots=True)
class BesideFacts:
    """The named canary, what was decided of it, the versions that are held, and the HTTPRoute."""

    canary: ModelVersionView | None = None
    verdict: RolloutVerdict | None = None
    is_resident: bool = False
    held: tuple[HeldVersion, ...] = ()
    route: RouteVerdict | None = None


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """What the status of one ModelCache is computed from."""

    cache: ModelCacheView
    version: ModelVersionView | None
    tally: CopyTally
    shortage: Shortage | None
    demanded: int = 0
    beside: BesideFacts = BesideFacts()


@dataclass(frozen=True, slots=True)
class _Outlook:
    """Ready, and what may come: `is_moving` without help, `is_stuck` until somebody helps."""

    reason: Reason
    message: str
    is_ready: bool = False
    is_moving: bool = False
    is_stuck: bool = False


def make_cache_status(facts: CacheFacts, now: datetime) -> ModelCacheStatus:
    """The whole status. Equal facts give an equal status, whatever `now` is."""
    cache, version, tally = facts.cache, facts.version, facts.tally
    verdict = facts.beside.verdict
    traffic = _make_traffic(verdict)
    size = version.status.size_bytes if version else None
    failures = tally.failures
    return ModelCacheStatus(
        observed_generation=cache.generation,
        tracks=_make_tracks(facts),
        traffic=traffic,
        traffic_summary=f"{traffic.stable}/{traffic.canary}" if traffic else None,
        rollout=verdict.state if verdict else None,
        held=facts.beside.held,
        copies=CopiesStatus(
            wanted=tally.wanted,
            placed=len(tally.copies),
            ready=tally.ready,
            in_tier=tally.in_tier,
            failed=len(failures),
            demanded=facts.demanded,
        ),
        copies_summary=f"{tally.ready}/{tally.wanted}",
        progress=f"{tally.progress_tenths * 10}%",
        size_bytes=size,
        size=format_bytes(size) if size is not None else None,
        failures=tuple(_make_failure(copy) for copy in failures[:MAX_FAILURES_SHOWN]),
        failures_omitted=max(0, len(failures) - MAX_FAILURES_SHOWN),
        conditions=merge_conditions(
            cache.status.conditions,
            (
                *_make_verdicts(_look_out(facts)),
                *_judge_canary(facts.beside),
                *_judge_route(facts.beside.route),
            ),
            generation=cache.generation,
            now=now,
        ),
    )


def make_unreadable_status(cache: ModelCacheView, name: str, now: datetime) -> ModelCacheStatus:
    """The status while a version that is named cannot be read: nothing is claimed or taken back."""
    message = (
        f"ModelVersion {name} holds what this operator does not know, "
        "and its copies are left as they are: upgrade the operator"
    )
    known = {Condition.READY: None, Condition.RECONCILING: False, Condition.STALLED: True}
    verdicts = [
        Verdict(kind, status, Reason.MODEL_VERSION_NOT_READY, message)
        for kind, status in known.items()
    ]
    conditions = merge_conditions(
        cache.status.conditions, verdicts, generation=cache.generation, now=now
    )
    kept = (item for item in cache.status.conditions if item.type not in known)
    update = {"observed_generation": cache.generation, "conditions": (*conditions, *kept)}
    return cache.status.model_copy(update=update)


def judge_canary_version(name: str, version: ModelVersionView | None) -> Trouble | None:
    """Why the named canary cannot be held, or None."""
    outlook = _judge_named(name, version)
    return None if outlook is None else Trouble(outlook.reason, outlook.message)


def _judge_canary(beside: BesideFacts) -> tuple[Verdict, ...]:
    """Whether its copies are there, and where its weight stands."""
    verdict = beside.verdict
    if verdict is None:
        return ()
    state = verdict.state
    counts = f"{state.copies_ready} of {state.copies}" if state else "none of the"
    told = Reason.CANARY_RESIDENT if beside.is_resident else verdict.reason
    if not beside.is_resident and told in {Reason.STEP_TAKEN, Reason.WEIGHT_REACHED}:
        told = Reason.CANARY_LOADING
    message = f"{counts} copies of the canary are verified"
    return (
        Verdict(Condition.CANARY_RESIDENT, beside.is_resident, told, message),
        Verdict(
            Condition.ROLLOUT_PROGRESSING, verdict.is_progressing, verdict.reason, verdict.message
        ),
    )


def _judge_route(route: RouteVerdict | None) -> tuple[Verdict, ...]:
    if route is None:
        return ()
    return (Verdict(Condition.TRAFFIC_ROUTED, route.is_routed, route.reason, route.message),)


def _make_traffic(verdict: RolloutVerdict | None) -> TrafficStatus | None:
    if verdict is None:
        return None
    return TrafficStatus(stable=100 - verdict.weight, canary=verdict.weight)


def _make_tracks(facts: CacheFacts) -> tuple[TrackStatus, ...]:
    spec = facts.cache.spec
    stable = _make_track(Track.STABLE, spec.stable.model_version, facts.version)
    if spec.canary is None:
        return (stable,)
    return stable, _make_track(Track.CANARY, spec.canary.model_version, facts.beside.canary)


def _make_track(track: Track, name: str, version: ModelVersionView | None) -> TrackStatus:
    if version is None:
        return TrackStatus(name=track, model_version=name)
    status = version.status
    return TrackStatus(
        name=track,
        model_version=name,
        uid=version.uid,
        content_digest=status.content_digest,
        node_label_key=None if describe_withdrawal(version) else status.node_label_key,
    )


def _make_failure(copy: Copy) -> Failure:
    entry = copy.entry
    reason = entry.reason if entry and entry.reason else Reason.TRANSFER_FAILED
    return Failure(node=copy.node, reason=reason, message=truncate(entry.message if entry else ""))


def _make_verdicts(outlook: _Outlook) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(kind, status, outlook.reason, outlook.message)
        for kind, status in (
            (Condition.READY, outlook.is_ready),
            (Condition.RECONCILING, outlook.is_moving),
            (Condition.STALLED, outlook.is_stuck),
        )
    )


def _look_out(facts: CacheFacts) -> _Outlook:
    """The first rule that applies. A version is judged before its copies, copies before room."""
    return (
        _judge_version(facts)
        or _judge_complete(facts)
        or _judge_enough(facts)
        or _judge_too_few(facts)
    )


def _judge_version(facts: CacheFacts) -> _Outlook | None:
    return _judge_named(facts.cache.spec.stable.model_version, facts.version)


def _judge_named(name: str, version: ModelVersionView | None) -> _Outlook | None:
    """Why the version that a track names cannot be held, or None."""
    if version is None:
        message = f"there is no ModelVersion {name} in this namespace: create it"
        return _Outlook(Reason.MODEL_VERSION_NOT_FOUND, message, is_stuck=True)
    if withdrawal := describe_withdrawal(version):
        reason, why = withdrawal
        return _Outlook(reason, f"ModelVersion {name}: {why}", is_stuck=True)
    if version.status.source_digest is not None:
        return None
    conditions = {item.type: item for item in version.status.conditions}
    ready, stalled = conditions.get(Condition.READY), conditions.get(Condition.STALLED)
    why = f"{ready.reason}: {ready.message}" if ready else Reason.RESOLVING.value
    is_stuck = stalled is not None and stalled.status == "True"
    message = f"ModelVersion {name} is not resolved: {why}"
    return _Outlook(
        Reason.MODEL_VERSION_NOT_READY, message, is_moving=not is_stuck, is_stuck=is_stuck
    )


def _judge_complete(facts: CacheFacts) -> _Outlook | None:
    tally = facts.tally
    if not tally.wanted or tally.in_tier < tally.wanted:
        return None
    where = "" if tally.tier is Tier.DISK else f" in tier {tally.tier}"
    return _Outlook(Reason.CACHED, f"{tally.in_tier} verified copies{where}", is_ready=True)


def _describe_ready(tally: CopyTally) -> str:
    have = f"{tally.ready} of {tally.wanted} copies are verified"
    if tally.tier is Tier.DISK:
        return have
    return f"{have}, {tally.in_tier} of {tally.wanted} in tier {tally.tier}"


def _judge_enough(facts: CacheFacts) -> _Outlook | None:
    tally = facts.tally
    if tally.ready < max(1, facts.cache.spec.placement.min_ready):
        return None
    have = _describe_ready(tally)
    moving = tally.furthest is not None
    if tally.failures:
        message = f"{have}; {_describe_failures(tally)}"
        return _Outlook(Reason.DEGRADED, message, is_ready=True, is_moving=moving)
    if tally.pressed:
        message = truncate(f"{have}; {_describe_pressed(tally)}")
        return _Outlook(Reason.DEGRADED, message, is_ready=True, is_moving=moving)
    if facts.shortage is not None:
        message = f"{have}; {facts.shortage.reason}: {facts.shortage.message}"
        return _Outlook(Reason.DEGRADED, message, is_ready=True, is_moving=moving)
    return _judge_underway(facts, have, is_ready=True) or _judge_slow(tally, have)


def _judge_slow(tally: CopyTally, have: str) -> _Outlook:
    """Nothing is fetched, and yet it is not complete."""
    if (slow := tally.refused_by_tier) is not None and slow.entry is not None:
        message = f"{have}; node {slow.node}: {slow.entry.reason}: {slow.entry.message}"
        return _Outlook(Reason.DEGRADED, message, is_ready=True)
    if tally.evicted:
        message = f"{have}; {tally.evicted} {_GIVEN_UP}: add capacity"
        return _Outlook(Reason.EVICTED, message, is_ready=True)
    return _Outlook(Reason.LOADING, have, is_ready=True, is_moving=True)


def _judge_underway(facts: CacheFacts, have: str, *, is_ready: bool) -> _Outlook | None:
    furthest = facts.tally.furthest
    if furthest is None:
        return None
    message = f"{have}, {facts.tally.progress_tenths * 10}% of the bytes are in place"
    if furthest is EntryState.PENDING and (queued := facts.tally.queued) is not None:
        message = truncate(f"{message}; {queued}")
        return _Outlook(Reason.QUEUED, message, is_ready=is_ready, is_moving=True)
    return _Outlook(_REASON_OF_STATE[furthest], message, is_ready=is_ready, is_moving=True)


def _judge_too_few(facts: CacheFacts) -> _Outlook:
    tally = facts.tally
    have = _describe_ready(tally)
    if underway := _judge_underway(facts, have, is_ready=False):
        return underway
    if tally.failures:
        message = f"{have}; {_describe_failures(tally)}"
        return _Outlook(_most_common_reason(tally), message, is_stuck=True)
    if facts.shortage is not None:
        waits = facts.shortage.reason is Reason.WAITING
        return _Outlook(
            facts.shortage.reason,
            facts.shortage.message,
            is_moving=waits,
            is_stuck=not waits,
        )
    if tally.pressed:
        message = truncate(f"{have}; {_describe_pressed(tally)}")
        return _Outlook(Reason.DISK_PRESSURE, message, is_stuck=True)
    message = f"{have}; {tally.evicted} {_GIVEN_UP}: add capacity or lower minReady"
    return _Outlook(Reason.EVICTED, message, is_stuck=True)


def _describe_failures(tally: CopyTally) -> str:
    first = tally.failures[0]
    cause = f": {first.entry.message}" if first.entry and first.entry.message else ""
    reason = first.entry.reason if first.entry and first.entry.reason else "TransferFailed"
    count = len(tally.failures)
    return f"{count} failed, first on node {first.node}: {reason}{cause}"


def _describe_pressed(tally: CopyTally) -> str:
    """What was given up, where, and when it comes back, in the words of the first node."""
    first = tally.pressed[0]
    why = first.entry.message if first.entry else ""
    return f"{len(tally.pressed)} under disk pressure, first on node {first.node}: {why}"


def _most_common_reason(tally: CopyTally) -> Reason:
    known = {reason.value for reason in Reason}
    words = [copy.entry.reason for copy in tally.failures if copy.entry]
    counted = Counter(word for word in words if word in known)
    if not counted:
        return Reason.TRANSFER_FAILED
    return Reason(min(counted, key=lambda word: (-counted[word], word)))
