"""Which Events people should see, from what a status was and what it became."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from modelcache_api import names
from modelcache_api.names import Condition, Reason, Track
from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheView,
    ModelVersionView,
    Uid,
)

_ACTION: Final = "Reconcile"
# On the way, and well known from the status itself: not worth an Event of their own.
_QUIET: Final = frozenset({Reason.RESOLVING, Reason.WAITING, Reason.QUEUED})
# Ready, and yet a warning.
_READY_BUT: Final = frozenset({Reason.DEGRADED, Reason.DAMAGED})
# Conditions that a CacheNode has only while something is wrong.
_WARNINGS_OF_NODES: Final = (
    Condition.DISK_PRESSURE,
    Condition.HOST_TIER_UNFIT,
    Condition.PEER_SUSPECTED,
)
_QUIET_WHILE_MOVING: Final = frozenset({Reason.MODEL_VERSION_NOT_READY})


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about. `namespace` is None for a cluster-scoped one."""

    kind: str
    namespace: str | None
    name: str
    uid: Uid
    api_version: str = names.API_VERSION


@dataclass(frozen=True, slots=True)
class EventNote:
    """One thing to tell."""

    regarding: Regarding
    is_warning: bool
    reason: str
    note: str
    action: str = _ACTION


def version_events(
    version: ModelVersionView, became: Sequence[ConditionStatus]
) -> tuple[EventNote, ...]:
    """What to tell after a ModelVersion's status has been written."""
    regarding = Regarding(
        names.KIND_MODEL_VERSION, version.key.namespace, version.key.name, version.uid
    )
    # That its source is being listed is quiet; all else that keeps it from being Ready is trouble,
    # though it may pass by itself.
    told = tell_transition(regarding, version.status.conditions, became, may_move=False)
    of_source = _tell_source(regarding, version.status.conditions, became)
    return (*told, *(note for note in of_source if note.reason not in {n.reason for n in told}))


def cache_events(cache: ModelCacheView, became: ModelCacheStatus) -> tuple[EventNote, ...]:
    """What to tell after a ModelCache's status has been written."""
    regarding = Regarding(names.KIND_MODEL_CACHE, cache.key.namespace, cache.key.name, cache.uid)
    return (
        *tell_transition(regarding, cache.status.conditions, became.conditions),
        *_tell_weight(regarding, cache.status, became),
        *_tell_change(regarding, cache.status, became, Condition.TRAFFIC_ROUTED),
        *_tell_versions(regarding, cache.status, became),
    )


def weight_in_force(status: ModelCacheStatus) -> int:
    """Percent of the traffic that the canary takes."""
    return status.traffic.canary if status.traffic is not None else 0


def node_events(
    cache_node: CacheNodeView, became: Sequence[ConditionStatus]
) -> tuple[EventNote, ...]:
    """What to tell after a CacheNode's conditions have been written."""
    regarding = Regarding(names.KIND_CACHE_NODE, None, cache_node.name, cache_node.uid)
    was = cache_node.status.conditions
    told = tuple(
        EventNote(regarding, is_warning=True, reason=found.reason, note=found.message)
        for kind in _WARNINGS_OF_NODES
        if (found := find_condition(became, kind)) is not None and find_condition(was, kind) is None
    )
    if find_condition(was) is None:
        # A thousand nodes that come up for the first time are no news each.
        return told
    return (*tell_transition(regarding, was, became), *told)


def tell_transition(
    regarding: Regarding,
    was: Sequence[ConditionStatus],
    became: Sequence[ConditionStatus],
    *,
    may_move: bool = True,
) -> tuple[EventNote, ...]:
    """One Event if Ready changed its status or its reason.

    That something is not Ready is a warning, but of what `may_move` not while it does.
    """
    old, new = find_condition(was), find_condition(became)
    if new is None or new.reason in _QUIET:
        return ()
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return ()
    moving = find_condition(became, Condition.RECONCILING)
    is_moving = moving is not None and moving.status == "True"
    if is_moving and new.reason in _QUIET_WHILE_MOVING:
        return ()
    is_wanting = new.status != "True" and not (may_move and is_moving)
    is_warning = is_wanting or new.reason in _READY_BUT
    return (EventNote(regarding, is_warning, new.reason, new.message or new.reason),)


def _tell_weight(
    regarding: Regarding, was: ModelCacheStatus, became: ModelCacheStatus
) -> tuple[EventNote, ...]:
    """One Event if the weight moved, or if something else is said of the rollout."""
    kind = Condition.ROLLOUT_PROGRESSING
    old, new = find_condition(was.conditions, kind), find_condition(became.conditions, kind)
    if new is None:
        return ()
    told = (EventNote(regarding, new.status != "True", new.reason, new.message),)
    if weight_in_force(was) != weight_in_force(became):
        return told
    if _is_passing(new):
        return ()
    said_before = old is not None and (old.status, old.reason) == (new.status, new.reason)
    if old is not None and said_before and not _is_passing(old) and was.traffic == became.traffic:
        return ()
    return told


def _is_passing(said: ConditionStatus) -> bool:
    """True while all that the canary lacks is that its source is being listed.

    A version that nobody has looked at yet has that word alone, without a sentence.
    """
    words = {word.rstrip(":") for word in said.message.split()}
    return said.reason in _QUIET_WHILE_MOVING and Reason.RESOLVING.value in words


def _tell_change(
    regarding: Regarding, was: ModelCacheStatus, became: ModelCacheStatus, kind: Condition
) -> tuple[EventNote, ...]:
    """One Event if something else is said than before."""
    old, new = find_condition(was.conditions, kind), find_condition(became.conditions, kind)
    if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
        return ()
    return (EventNote(regarding, new.status != "True", new.reason, new.message),)


def _tell_versions(
    regarding: Regarding, was: ModelCacheStatus, became: ModelCacheStatus
) -> Iterator[EventNote]:
    """What was promoted, what is held from now on, and what is held no more."""
    old, new = {track.name: track for track in was.tracks}, became.tracks
    tried = old.get(Track.CANARY)
    if tried is not None and tried.uid is not None and new and new[0].uid == tried.uid:
        note = f"ModelVersion {tried.model_version} is stable now"
        yield EventNote(regarding, is_warning=False, reason=Reason.PROMOTED, note=note)
    before, after = {row.uid: row for row in was.held}, {row.uid: row for row in became.held}
    for uid in sorted(after.keys() - before.keys()):
        row = after[uid]
        note = (
            f"ModelVersion {row.model_version or uid} has left the spec: its bytes stay on "
            f"{row.copies} nodes until {row.until.isoformat()}"
        )
        yield EventNote(regarding, is_warning=False, reason=Reason.HELD, note=note)
    wanted = {track.uid for track in new}
    for uid in sorted(before.keys() - after.keys() - wanted):
        note = f"ModelVersion {before[uid].model_version or uid} is not held any more"
        yield EventNote(regarding, is_warning=False, reason=Reason.HOLD_ENDED, note=note)


def _tell_source(
    regarding: Regarding, was: Sequence[ConditionStatus], became: Sequence[ConditionStatus]
) -> tuple[EventNote, ...]:
    """One Event if the source is another than before; that it is as resolved is no news."""
    old = find_condition(was, Condition.SOURCE_CURRENT)
    new = find_condition(became, Condition.SOURCE_CURRENT)
    if new is None or (old is None and new.status == "True"):
        return ()
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return ()
    return (EventNote(regarding, new.status != "True", new.reason, new.message),)


def find_condition(
    conditions: Sequence[ConditionStatus], kind: Condition = Condition.READY
) -> ConditionStatus | None:
    """The condition of that type, or None."""
    return next((item for item in conditions if item.type == kind), None)
