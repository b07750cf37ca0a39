"""Raw objects of the API server to views: once, at the border, and only what is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from modelcache_api.names import (
    AGENT_LEASE_PREFIX,
    GATE_PLACEMENT,
    LABEL_CACHE,
    WARM_UP_CONTAINER,
)
from modelcache_api.v1alpha1.base import ApiModel
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheNodeStatus
from modelcache_api.v1alpha1.model_cache import ModelCacheSpec, ModelCacheStatus
from modelcache_api.v1alpha1.model_cache_quota import ModelCacheQuotaSpec, ModelCacheQuotaStatus
from modelcache_api.v1alpha1.model_version import ModelVersionSpec, ModelVersionStatus
from modelcache_operator.adapters.pod_constraints import parse_constraints
from modelcache_operator.changes import View
from modelcache_operator.decide.quota import read_limits
from modelcache_operator.decide.world import (
    AgentLeaseView,
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    PodView,
    TaintView,
    Uid,
)
from modelcache_operator.injection import find_track

Raw = Mapping[str, Any]
_M = TypeVar("_M", bound=ApiModel)
# Each round leaves out all that the one before complained of; nothing needs as many.
_MAX_ROUNDS: Final = 4
# Those of a thousand models, a kilobyte or two each.
_SHARED_ROWS: Final = 4096
# Phases of pods that will never run again, though their objects stay.
_OVER: Final = frozenset({"Succeeded", "Failed"})


class ObservedKind(StrEnum):
    """The kinds that the watch cache holds, by the plural of their resource."""

    MODEL_VERSIONS = "modelversions"
    MODEL_CACHES = "modelcaches"
    QUOTAS = "modelcachequotas"
    CACHE_NODES = "cachenodes"
    NODES = "nodes"
    PODS = "pods"


@dataclass(frozen=True, slots=True)
class Observed:
    """One object as seen at one resourceVersion. `view` is None if it cannot be read."""

    kind: ObservedKind
    key: ObjectKey
    uid: Uid
    version: int
    view: View | None
    problem: str = ""


def parse_object(kind: ObservedKind, raw: Raw) -> Observed:
    """The object, with its view if it is what this release knows."""
    metadata = raw["metadata"]
    key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
    version, uid = read_version(raw), Uid(metadata["uid"])
    try:
        return Observed(kind, key, uid, version, _PARSERS[kind](raw, key, uid))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Observed(kind, key, uid, version, None, f"{type(error).__name__}: {error}")


def read_version(raw: Raw) -> int:
    """The resourceVersion; 0 of an object without one."""
    return int(raw["metadata"].get("resourceVersion") or 0)


def _parse_version(raw: Raw, key: ObjectKey, uid: Uid) -> ModelVersionView:
    return ModelVersionView(
        key=key,
        uid=uid,
        generation=raw["metadata"].get("generation", 0),
        spec=ModelVersionSpec.model_validate(raw["spec"]),
        status=ModelVersionStatus.model_validate(raw.get("status") or {}),
        is_deleted=_is_deleted(raw),
    )


def _parse_cache(raw: Raw, key: ObjectKey, uid: Uid) -> ModelCacheView:
    return ModelCacheView(
        key=key,
        uid=uid,
        generation=raw["metadata"].get("generation", 0),
        spec=ModelCacheSpec.model_validate(raw["spec"]),
        status=_read_leniently(ModelCacheStatus, raw.get("status") or {}),
        is_deleted=_is_deleted(raw),
        created_at=raw["metadata"].get("creationTimestamp") or "",
    )


def _parse_quota(raw: Raw, key: ObjectKey, uid: Uid) -> ModelCacheQuotaView:
    spec = ModelCacheQuotaSpec.model_validate(raw["spec"])
    read_limits(spec, "")
    return ModelCacheQuotaView(
        key=key,
        uid=uid,
        generation=raw["metadata"].get("generation", 0),
        spec=spec,
        status=_read_leniently(ModelCacheQuotaStatus, raw.get("status") or {}),
        is_deleted=_is_deleted(raw),
    )


def _parse_cache_node(raw: Raw, key: ObjectKey, uid: Uid) -> CacheNodeView:
    spec = CacheNodeSpec.model_validate(raw["spec"])
    status = _read_leniently(CacheNodeStatus, raw.get("status") or {})
    return CacheNodeView(
        name=NodeName(key.name),
        uid=uid,
        spec=spec.model_copy(
            update={"entries": _share(spec.entries), "caches": _share(spec.caches)}
        ),
        status=status.model_copy(update={"entries": _share(status.entries)}),
    )


def _share(rows: tuple[_M, ...]) -> tuple[_M, ...]:
    """Equal rows of all nodes are one object: a thousand nodes are told the same of a version."""
    return tuple(_share_row(row) for row in rows)


@lru_cache(maxsize=_SHARED_ROWS)
def _first_equal(row: ApiModel) -> ApiModel:
    return row


def _share_row(row: _M) -> _M:
    found = _first_equal(row)
    return found if isinstance(found, type(row)) else row


def _parse_node(raw: Raw, key: ObjectKey, uid: Uid) -> NodeView:
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    conditions = (raw.get("status") or {}).get("conditions") or ()
    states = {c.get("type"): c.get("status") for c in conditions}
    taints = (
        TaintView(taint.get("key") or "", taint.get("value") or "", taint.get("effect") or "")
        for taint in spec.get("taints") or ()
    )
    return NodeView(
        name=NodeName(key.name),
        uid=uid,
        labels=dict(metadata.get("labels") or {}),
        taints=tuple(sorted(taints, key=lambda taint: (taint.key, taint.effect))),
        is_unschedulable=bool(spec.get("unschedulable")),
        is_ready=states.get("Ready") == "True",
        has_disk_pressure=states.get("DiskPressure") == "True",
        is_deleted=_is_deleted(raw),
    )


def _parse_pod(raw: Raw, key: ObjectKey, uid: Uid) -> PodView:
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    status = raw.get("status") or {}
    ready = {c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"}
    gates = {gate["name"] for gate in spec.get("schedulingGates") or ()}
    is_gated = GATE_PLACEMENT in gates
    is_cold, failure = _parse_warm_up(spec, status)
    return PodView(
        key=key,
        uid=uid,
        cache=ObjectKey(key.namespace, (metadata.get("labels") or {}).get(LABEL_CACHE, "")),
        track=find_track(raw),
        node=NodeName(spec["nodeName"]) if spec.get("nodeName") else None,
        created_at=metadata.get("creationTimestamp") or "",
        is_gated=is_gated,
        is_over=status.get("phase") in _OVER,
        is_ready=ready == {"True"},
        is_terminating=_is_deleted(raw),
        is_cold=is_cold,
        warm_up_failure=failure,
        constraints=parse_constraints(spec) if is_gated else None,
    )


def _parse_warm_up(spec: Raw, status: Raw) -> tuple[bool, str | None]:
    """Whether the pod's warm-up is yet to succeed, and how it last failed, as the kubelet says."""
    if all(one["name"] != WARM_UP_CONTAINER for one in spec.get("initContainers") or ()):
        return False, None
    found = status.get("initContainerStatuses") or ()
    seen: Raw = next((one for one in found if one.get("name") == WARM_UP_CONTAINER), {})
    if seen.get("ready"):
        return False, None
    for state in ("state", "lastState"):
        ended = (seen.get(state) or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return True, str(ended.get("message") or f"exit code {ended['exitCode']}")
    return True, None


def _read_leniently(model: type[_M], raw: Raw) -> _M:
    """What can be read of a status: rows and fields that a newer release has invented are left out.

    For what is only reported. A spec is read whole or not at all.
    """
    for _ in range(_MAX_ROUNDS):
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            raw = _leave_out(raw, error)
    return model.model_validate({})


def _leave_out(raw: Raw, error: ValidationError) -> Raw:
    known = dict(raw)
    bad_rows: dict[str, set[int]] = {}
    for problem in error.errors(include_url=False):
        field, *below = problem["loc"] or ("",)
        if below and isinstance(below[0], int):
            bad_rows.setdefault(str(field), set()).add(below[0])
        elif problem["type"] == "too_long" and isinstance(known.get(str(field)), list):
            known[str(field)] = known[str(field)][: problem["ctx"]["max_length"]]
        else:
            known.pop(str(field), None)
    for field, numbers in bad_rows.items():
        known[field] = _without(known.get(field) or (), numbers)
    return known


def _without(rows: Iterable[Any], numbers: set[int]) -> list[Any]:
    return [row for number, row in enumerate(rows) if number not in numbers]


def _is_deleted(raw: Raw) -> bool:
    return bool(raw["metadata"].get("deletionTimestamp"))


_PARSERS: Mapping[ObservedKind, Callable[[Raw, ObjectKey, Uid], View]] = {
    ObservedKind.MODEL_VERSIONS: _parse_version,
    ObservedKind.MODEL_CACHES: _parse_cache,
    ObservedKind.QUOTAS: _parse_quota,
    ObservedKind.CACHE_NODES: _parse_cache_node,
    ObservedKind.NODES: _parse_node,
    ObservedKind.PODS: _parse_pod,
}


def parse_agent_lease(raw: Raw) -> AgentLeaseView | None:
    """An agent's Lease, or None if it is not one: no Node owns it, or it was never renewed."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    name, renewed = metadata["name"], spec.get("renewTime")
    owners = metadata.get("ownerReferences") or ()
    node_uid = next((owner["uid"] for owner in owners if owner.get("kind") == "Node"), None)
    if not name.startswith(AGENT_LEASE_PREFIX) or node_uid is None or not renewed:
        return None
    return AgentLeaseView(
        node=NodeName(name.removeprefix(AGENT_LEASE_PREFIX)),
        node_uid=Uid(node_uid),
        renewed_at=datetime.fromisoformat(renewed),
    )
