from __future__ import annotations

from http import HTTPStatus

import pytest

from modelcache_api.manifest import (
    PIECE_BYTES,
    ContentFile,
    SourceFile,
    make_content_manifest,
    make_source_manifest,
)
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheNodeStatus, EntrySpec
from modelcache_operator.decide.grant_access import (
    AgentAccount,
    Caller,
    Claims,
    Denial,
    PodState,
    check_node,
    check_pod,
    find_entry,
    identify_caller,
    judge_adoption,
    judge_proposal,
)
from modelcache_operator.decide.world import CacheNodeView, NodeName, NodeView, Uid

ACCOUNT = AgentAccount("modelcache-system", "modelcache-agent")
AGENT = "system:serviceaccount:modelcache-system:modelcache-agent"
CALLER = Caller(NodeName("n1"), Uid("node-uid"), "agent-x", "pod-uid")
DIGEST = "sha256:" + "a" * 64


def claims(**more):
    given = {"node_name": "n1", "node_uid": "node-uid", "pod_name": "agent-x", "pod_uid": "pod-uid"}
    return Claims(**({"username": AGENT} | given | more))


def test_a_bound_token_of_the_agents_account_is_a_caller():
    assert identify_caller(claims(), ACCOUNT) == CALLER


@pytest.mark.parametrize(
    ("given", "status"),
    [
        pytest.param(None, HTTPStatus.UNAUTHORIZED, id="not valid for our audience"),
        pytest.param(claims(username="system:admin"), HTTPStatus.FORBIDDEN, id="somebody else"),
        pytest.param(
            claims(username="system:serviceaccount:other:modelcache-agent"),
            HTTPStatus.FORBIDDEN,
            id="the same name elsewhere",
        ),
        pytest.param(claims(node_name=None), HTTPStatus.FORBIDDEN, id="no node"),
        pytest.param(claims(node_uid=""), HTTPStatus.FORBIDDEN, id="no node UID"),
        pytest.param(claims(pod_uid=None), HTTPStatus.FORBIDDEN, id="no pod"),
    ],
)
def test_other_tokens_are_denied(given, status):
    found = identify_caller(given, ACCOUNT)
    assert isinstance(found, Denial)
    assert found.status == status


def node(**more):
    return NodeView(**({"name": NodeName("n1"), "uid": Uid("node-uid"), "labels": {}} | more))


def test_the_node_must_be_the_same_and_alive():
    assert check_node(CALLER, node()) is None
    for unseen in (None, node(uid=Uid("rebuilt"))):
        assert check_node(CALLER, unseen).reason == "NotKnownYet"
    assert check_node(CALLER, node(is_deleted=True)).reason == "GrantRefused"


def test_the_pod_must_be_the_same_and_alive():
    assert check_pod(CALLER, PodState("pod-uid", "n1")) is None
    for gone in (
        None,
        PodState("another", "n1"),
        PodState("pod-uid", "n2"),
        PodState("pod-uid", None),
        PodState("pod-uid", "n1", is_terminating=True),
        PodState("pod-uid", "n1", is_finished=True),
    ):
        assert isinstance(check_pod(CALLER, gone), Denial)


def cache_node(node_uid="node-uid"):
    entry = EntrySpec(uid="u1", source_digest=DIGEST, size_bytes=1)
    spec = CacheNodeSpec(node_uid=node_uid, entries=(entry,))
    return CacheNodeView(NodeName("n1"), Uid("c"), spec, CacheNodeStatus())


def test_only_entries_of_the_callers_own_cache_node_are_found():
    assert find_entry(CALLER, cache_node(), Uid("u1")) is not None
    assert find_entry(CALLER, cache_node(), Uid("u2")) is None
    assert find_entry(CALLER, cache_node("rebuilt"), Uid("u1")) is None
    assert find_entry(CALLER, None, Uid("u1")) is None


SOURCE = make_source_manifest([SourceFile("w", PIECE_BYTES + 1, '"e"'), SourceFile("c", 2, '"e"')])


def content(*, weights=PIECE_BYTES + 1, pieces=2, sha="1", extra=()):
    return make_content_manifest(
        [
            ContentFile("w", weights, sha * 64, ("2" * 64,) * pieces),
            ContentFile("c", 2, "3" * 64),
            *extra,
        ]
    )


@pytest.mark.parametrize(
    ("proposed", "says"),
    [
        pytest.param(content(weights=5), "has 5 bytes", id="another size"),
        pytest.param(content(pieces=3), "3 pieces, its size makes 2", id="pieces"),
        pytest.param(content(extra=[ContentFile("x", 1, "4" * 64)]), "source lacks", id="extra"),
    ],
)
def test_a_proposal_must_be_of_the_source(proposed, says):
    error = judge_proposal(SOURCE, proposed, None)
    assert error is not None
    assert error.reason == "DigestMismatch"
    assert says in error.message


def test_a_pin_decides_and_both_digests_are_named():
    good = content()
    assert judge_proposal(SOURCE, good, None) is None
    assert judge_proposal(SOURCE, good, good.digest) is None
    error = judge_proposal(SOURCE, good, DIGEST)
    assert error is not None
    assert DIGEST in error.message
    assert good.digest in error.message


def test_a_second_content_is_a_mismatch_that_names_both():
    assert judge_adoption(content(), content()) is None
    error = judge_adoption(content(sha="5"), content())
    assert error is not None
    assert content().digest in error.message
    assert content(sha="5").digest in error.message
