"""May a pod run on a node? By what it asks of labels, names and taints; room is not looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from modelcache_operator.decide.eligibility import tolerates
from modelcache_operator.decide.world import (
    NodeRequirement,
    NodeTerm,
    NodeView,
    PodConstraints,
    TaintView,
)

_HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_CORDON: Final = TaintView("node.kubernetes.io/unschedulable", "", "NoSchedule")
_NAME_FIELD: Final = "metadata.name"


def may_run_on(constraints: PodConstraints, node: NodeView) -> bool:
    """True if the scheduler would consider the node, as far as the pod's own wishes go."""
    if node.is_deleted or not node.is_ready:
        return False
    taints = [taint for taint in node.taints if taint.effect in _HARD_EFFECTS]
    if node.is_unschedulable and _CORDON not in taints:
        taints.append(_CORDON)
    for taint in taints:
        if not any(tolerates(one, taint) for one in constraints.tolerations):
            return False
    if any(node.labels.get(key) != value for key, value in constraints.node_selector):
        return False
    return constraints.terms is None or any(_holds(term, node) for term in constraints.terms)


def _holds(term: NodeTerm, node: NodeView) -> bool:
    # An empty term matches nothing, as in Kubernetes.
    if not term.labels and not term.fields:
        return False
    name = {_NAME_FIELD: str(node.name)}
    return all(_is_met(one, node.labels) for one in term.labels) and all(
        _is_met(one, name) for one in term.fields
    )


def _is_met(requirement: NodeRequirement, values: Mapping[str, str]) -> bool:
    value = values.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compare(requirement, value)
    return False


def _compare(requirement: NodeRequirement, value: str | None) -> bool:
    try:
        number, limit = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return number > limit if requirement.operator == "Gt" else number < limit
