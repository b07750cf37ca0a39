"""Which Events people should see, from what a status was and what it became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from modelcache_api import names
from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.base import ConditionStatus
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
    told = _tell_transition(regarding, version.status.conditions, became)
    of_source = _tell_source(regarding, version.status.conditions, became)
    return (*told, *(note for note in of_source if note.reason not in {n.reason for n in told}))


def cache_events(cache: ModelCacheView, became: Sequence[ConditionStatus]) -> tuple[EventNote, ...]:
    """What to tell after a ModelCache's status has been written."""
    regarding = Regarding(names.KIND_MODEL_CACHE, cache.key.namespace, cache.key.name, cache.uid)
    return _tell_transition(regarding, cache.status.conditions, became)


def node_events(
    cache_node: CacheNodeView, became: Sequence[ConditionStatus]
) -> tuple[EventNote, ...]:
    """What to tell after a CacheNode's conditions have been written."""
    regarding = Regarding(names.KIND_CACHE_NODE, None, cache_node.name, cache_node.uid)
    was = cache_node.status.conditions
    told = tuple(
        EventNote(regarding, is_warning=True, reason=found.reason, note=found.message)
        for kind in (Condition.DISK_PRESSURE, Condition.PEER_SUSPECTED)
        if (found := find_condition(became, kind)) is not None and find_condition(was, kind) is None
    )
    if find_condition(was) is None:
        # A thousand nodes that come up for the first time are no news each.
        return told
    return (*_tell_transition(regarding, was, became), *told)


def _tell_transition(
    regarding: Regarding, was: Sequence[ConditionStatus], became: Sequence[ConditionStatus]
) -> tuple[EventNote, ...]:
    """One Event if Ready changed its status or its reason."""
    old, new = find_condition(was), find_condition(became)
    if new is None or new.reason in _QUIET:
        return ()
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return ()
    moving = find_condition(became, Condition.RECONCILING)
    is_moving = moving is not None and moving.status == "True"
    if is_moving and new.reason in _QUIET_WHILE_MOVING:
        return ()
    is_warning = (new.status != "True" and not is_moving) or new.reason in _READY_BUT
    return (EventNote(regarding, is_warning, new.reason, new.message or new.reason),)


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
