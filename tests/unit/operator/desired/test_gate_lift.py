"""The patches that let pods through."""

from __future__ import annotations

from modelcache_operator.desired.gate_lift import build_gate_lift, build_taint_lift

GATE = {"name": "modelcache.io/placement"}
KEY = "cache.modelcache.io/m-1"
OURS = {"key": KEY, "operator": "Exists"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GUARD = {"uid": "u", "resourceVersion": "7"}


def pod(**spec):
    return {"metadata": GUARD | {"name": "p"}, "spec": spec}


def terms_of(patch):
    return patch["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def required(*terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def test_other_gates_stay_and_the_pod_as_read_is_guarded():
    patch = build_gate_lift(pod(schedulingGates=[{"name": "other"}, GATE]), None)
    assert patch == {"metadata": GUARD, "spec": {"schedulingGates": [{"name": "other"}]}}


def test_a_pod_without_our_gate_needs_no_patch():
    assert build_gate_lift(pod(schedulingGates=[{"name": "other"}]), KEY) is None
    assert build_gate_lift(pod(), KEY) is None


def test_without_terms_ours_is_the_only_one():
    for affinity in ({}, {"affinity": {}}, {"affinity": {"nodeAffinity": {}}}):
        patch = build_gate_lift(pod(schedulingGates=[GATE], **affinity), KEY)
        assert terms_of(patch) == [{"matchExpressions": [OURS]}]


def test_C31_ours_is_joined_with_each_term_and_an_empty_one_stays_empty():
    first = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    second = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    given = pod(schedulingGates=[GATE], affinity=required(first, second, {}))
    assert terms_of(build_gate_lift(given, KEY)) == [
        {"matchExpressions": [*first["matchExpressions"], OURS]},
        {**second, "matchExpressions": [OURS]},
        {},
    ]


def test_only_our_taint_is_taken_off():
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    ours = {"key": "modelcache.io/agent-not-ready", "effect": "NoExecute"}
    node = {"metadata": GUARD, "spec": {"taints": [ours, theirs, ours | {"effect": "NoSchedule"}]}}
    assert build_taint_lift(node) == {"metadata": GUARD, "spec": {"taints": [theirs]}}
    assert build_taint_lift({"metadata": GUARD, "spec": {"taints": [theirs]}}) is None
    assert build_taint_lift({"metadata": GUARD, "spec": {}}) is None
