"""On which nodes a pod may run, read from its spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from modelcache_api.v1alpha1.model_cache import TaintEffect, Toleration, TolerationOperator
from modelcache_operator.decide.world import NodeRequirement, NodeTerm, PodConstraints

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def parse_constraints(spec: Mapping[str, Any]) -> PodConstraints:
    """Node selector, required node affinity and tolerations; nothing about room."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    terms = required.get("nodeSelectorTerms") or () if required is not None else None
    return PodConstraints(
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        terms=tuple(map(_parse_term, terms)) if terms is not None else None,
        tolerations=tuple(_parse_tolerations(spec.get("tolerations") or ())),
    )


def _parse_term(raw: Mapping[str, Any]) -> NodeTerm:
    return NodeTerm(
        labels=tuple(map(_parse_requirement, raw.get("matchExpressions") or ())),
        fields=tuple(map(_parse_requirement, raw.get("matchFields") or ())),
    )


def _parse_requirement(raw: Mapping[str, Any]) -> NodeRequirement:
    return NodeRequirement(raw["key"], raw["operator"], tuple(raw.get("values") or ()))


def _parse_tolerations(raw: Iterable[Mapping[str, Any]]) -> Iterable[Toleration]:
    """Those that we can judge; operators of later Kubernetes versions count as no toleration."""
    for one in raw:
        operator = one.get("operator") or TolerationOperator.EQUAL
        if operator not in set(TolerationOperator):
            continue
        yield Toleration.model_construct(
            key=one.get("key") or None,
            operator=TolerationOperator(operator),
            value=one.get("value"),
            effect=TaintEffect(one["effect"]) if one.get("effect") else None,
        )
