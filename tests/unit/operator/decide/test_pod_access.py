from __future__ import annotations

from dataclasses import replace

import pytest

from builders import digest, make_condition, make_version
from modelcache_api.pod_wire import PodVersionRequest
from modelcache_operator.decide.grant_access import AgentAccount, Claims, Denial, PodState
from modelcache_operator.decide.pod_access import (
    PodCaller,
    check_bound_pod,
    check_namespace,
    describe_version,
    identify_pod,
    judge_version,
    make_entry,
)
from modelcache_operator.decide.world import ObjectKey

AGENTS = AgentAccount("modelcache-system", "modelcache-agent")
GOOD = Claims("system:serviceaccount:search:default", "n1", "node-uid", "trainer", "pod-uid")
CALLER = PodCaller(ObjectKey("search", "trainer"), "pod-uid", "n1")
READY = make_version(conditions=(make_condition("Resolved"),))


def test_a_bound_token_tells_the_pod_and_its_namespace():
    assert identify_pod(GOOD, AGENTS) == CALLER


@pytest.mark.parametrize(
    ("claims", "status", "says"),
    [
        pytest.param(None, 401, "not valid here", id="not valid for our audience"),
        pytest.param(replace(GOOD, username="admin"), 403, "service accounts", id="a person"),
        pytest.param(
            replace(GOOD, username="system:node:n1"), 403, "service accounts", id="a kubelet"
        ),
        pytest.param(
            replace(GOOD, username="system:serviceaccount:search"), 403, "service", id="no account"
        ),
        pytest.param(replace(GOOD, username=AGENTS.username), 403, "agent", id="an agent"),
        pytest.param(replace(GOOD, pod_name=None), 403, "not bound to a pod", id="no pod"),
        pytest.param(replace(GOOD, pod_uid=""), 403, "not bound to a pod", id="no pod's UID"),
    ],
)
def test_other_tokens_are_denied_with_the_cause(claims, status, says):
    found = identify_pod(claims, AGENTS)
    assert isinstance(found, Denial)
    assert found.status == status
    assert says in found.message


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        pytest.param(PodState("pod-uid", "n1"), None, id="alive"),
        pytest.param(None, "gone", id="deleted"),
        pytest.param(PodState("another", "n1"), "gone", id="another pod of its name"),
        pytest.param(PodState("pod-uid", "n2"), "another node", id="elsewhere"),
        pytest.param(PodState("pod-uid", "n1", is_terminating=True), "ending", id="ending"),
        pytest.param(PodState("pod-uid", "n1", is_finished=True), "ending", id="finished"),
    ],
)
def test_the_pod_must_be_the_same_and_alive(pod, says):
    denial = check_bound_pod(CALLER, pod)
    assert (denial is None) == (says is None)
    assert denial is None or says in denial.message


def test_a_token_that_names_no_node_is_good_on_any():
    assert check_bound_pod(replace(CALLER, node_name=None), PodState("pod-uid", "n7")) is None


@pytest.mark.parametrize("namespace", [None, "search"])
def test_a_pod_asks_in_its_own_namespace(namespace):
    assert check_namespace(CALLER, PodVersionRequest(namespace=namespace, model_cache="m")) is None


def test_another_namespace_is_refused_by_name():
    asked = PodVersionRequest(namespace="payments", model_version="m1")
    error = check_namespace(CALLER, asked)
    assert error is not None
    assert error.reason == "GrantRefused"
    assert "runs in search" in error.message
    assert "payments" not in error.message


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        pytest.param(READY, None, id="ready"),
        pytest.param(replace(READY, is_deleted=True), "GrantRefused", id="being deleted"),
        pytest.param(make_version(), "ModelVersionNotReady", id="not judged yet"),
        pytest.param(
            make_version(conditions=(make_condition("SourceGone", "False"),)),
            "ModelVersionNotReady",
            id="withdrawn",
        ),
        pytest.param(
            make_version(resolved=False, conditions=(make_condition("Resolved"),)),
            "ModelVersionNotReady",
            id="ready without a source",
        ),
    ],
)
def test_only_ready_versions_are_granted(version, reason):
    error = judge_version(version)
    assert (error and error.reason) == reason


def test_a_version_that_is_not_ready_says_why():
    condition = make_condition("AuthFailed", "False", message="the store refused the keys")
    error = judge_version(make_version(conditions=(condition,)))
    assert error is not None
    assert "search/m1 is not Ready: AuthFailed: the store refused the keys" in error.message


def test_the_pod_learns_the_pin_before_the_content_is_adopted():
    assert describe_version(READY).content_digest is None
    adopted = make_version(content_digest=digest("b"))
    assert describe_version(adopted).content_digest == digest("b")
    assert describe_version(make_version(spec_digest=digest("c"))).content_digest == digest("c")
    assert make_entry(READY).source_digest == digest("a")
