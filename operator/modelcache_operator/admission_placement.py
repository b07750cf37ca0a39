"""The policy that brings a pod to its model: affinity and gate in CEL. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modelcache_api import names
from modelcache_operator.admission_cel import (
    ANNOTATIONS,
    LABELS,
    Cel,
    Raw,
    add,
    annotate,
    build_conditions,
    build_mutation,
    build_variables,
    member,
    quote,
    when,
)
from modelcache_operator.desired.affinity import build_preferred_terms
from modelcache_operator.injection import DEFAULT_TRACK, PREFERRED


def build_placement_spec() -> Raw:
    """What is the placement policy's own of its spec."""
    mine = f"params.metadata.name == {member(LABELS, names.LABEL_CACHE)}"
    conditions = build_conditions(names.ANNOTATION_INJECTED_AFFINITY)
    return {
        # The pod would start as well without it, only perhaps elsewhere.
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": names.API_VERSION, "kind": names.KIND_MODEL_CACHE},
        "matchConditions": [{"name": "its-cache", "expression": mine}, *conditions],
        "variables": build_variables(_placement_variables()),
        "mutations": build_mutation(_placement_operations()),
    }


def _placement_variables() -> dict[str, str]:
    track = f'{LABELS}[?{quote(names.LABEL_TRACK)}].orValue("")'
    required = quote(names.PLACEMENT_REQUIRED)
    wish = f"{LABELS}[?{quote(names.LABEL_PLACEMENT)}]"
    noted = f"{ANNOTATIONS}[?{quote(names.LABEL_PLACEMENT)}]"
    count = "params.?status.copies.{}.orValue(0)".format
    return {
        "track": f'{track} == "" ? {quote(DEFAULT_TRACK)} : {track}',
        "keys": (
            "params.?status.tracks.orValue([])"
            '.filter(t, t.name == variables.track && t.?nodeLabelKey.orValue("") != "")'
            ".map(t, string(t.nodeLabelKey))"
        ),
        "isGated": (
            f'({wish}.orValue("") != "" ? {wish} : {noted}).orValue("") == {required} && '
            f"{count('placed')} > {count('failed')} && "
            'object.spec.?nodeName.orValue("") == "" && '
            "!object.spec.?schedulingGates.orValue([])"
            f".exists(g, g.name == {quote(names.GATE_PLACEMENT)})"
        ),
    }


def _placement_operations() -> Iterable[str]:
    known = "size(variables.keys) > 0"
    parents = ("affinity", "nodeAffinity", PREFERRED)
    for depth in range(1, len(parents) + 1):
        present = f"object.spec.?{'.'.join(parents[:depth])}.hasValue()"
        empty: Any = [] if depth == len(parents) else {}
        path = "/spec/" + "/".join(parents[:depth])
        yield when(f"{known} && !{present}", add(path, empty))
    terms = build_preferred_terms(Cel("variables.keys[0]"))
    yield when(known, *(add(f"/spec/{'/'.join(parents)}/-", term) for term in terms))
    gate = {"name": names.GATE_PLACEMENT}
    has_gates = "object.spec.?schedulingGates.hasValue()"
    yield when(f"variables.isGated && !{has_gates}", add("/spec/schedulingGates", []))
    yield when("variables.isGated", add("/spec/schedulingGates/-", gate))
    mark = Cel('variables.keys.join("")')
    yield from annotate({names.ANNOTATION_INJECTED_AFFINITY: mark})
