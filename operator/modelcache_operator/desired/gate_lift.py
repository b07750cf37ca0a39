"""The patches that let pods through: a pod's gate, and a node's taint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from modelcache_api.names import GATE_PLACEMENT, TAINT_AGENT_NOT_READY
from modelcache_operator.desired.affinity import build_holder_requirement

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = "nodeSelectorTerms"

Raw = Mapping[str, Any]


def build_gate_lift(pod: Raw, require: str | None) -> dict[str, Any] | None:
    """A merge patch, or None if there is no such gate. `require` keeps to nodes with that label.

    The requirement is joined with each term that is there: an additional term would widen what
    the user allows. The pod as read is guarded, for lists are replaced whole.
    """
    gates = pod["spec"].get("schedulingGates") or []
    kept = [gate for gate in gates if gate["name"] != GATE_PLACEMENT]
    if len(kept) == len(gates):
        return None
    spec: dict[str, Any] = {"schedulingGates": kept}
    if require is not None:
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {_TERMS: _join(pod["spec"], require)}}}
    return {"metadata": _guard(pod), "spec": spec}


def build_taint_lift(node: Raw) -> dict[str, Any] | None:
    """A merge patch, or None if there is no such taint."""
    taints = node["spec"].get("taints") or []
    kept = [taint for taint in taints if taint["key"] != TAINT_AGENT_NOT_READY]
    if len(kept) == len(taints):
        return None
    return {"metadata": _guard(node), "spec": {"taints": kept}}


def _join(spec: Raw, require: str) -> list[dict[str, Any]]:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get(_REQUIRED)
    requirement = build_holder_requirement(require)
    if required is None:
        return [{"matchExpressions": [requirement]}]
    # An empty term matches nothing; with our requirement it would match.
    return [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), requirement]}
        if term
        else {}
        for term in required.get(_TERMS) or ()
    ]


def _guard(raw: Raw) -> dict[str, str]:
    metadata = raw["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
