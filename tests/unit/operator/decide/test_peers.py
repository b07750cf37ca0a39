"""Who reads the source, and from whom the others read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import digest, make_node
from modelcache_api.names import EntryState
from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_api.v1alpha1.cache_node import (
    CacheNodeSpec,
    CacheNodeStatus,
    EntrySpec,
    EntryStatus,
    PeerStatus,
)
from modelcache_api.wire import MAX_HOLDERS
from modelcache_operator.decide.peers import (
    Candidate,
    Claim,
    Question,
    Role,
    choose_awaited,
    choose_holders,
    choose_role,
    find_candidates,
)
from modelcache_operator.decide.world import CacheNodeView, NodeName, Uid

ENTRY = EntrySpec(uid="v1", source_digest=digest("a"), size_bytes=9)
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
FRESH, OLD = 1.0, 1000.0


def a_candidate(name, state=None, *, distance=1, complete=False):
    return Candidate(Uid(name), "10.0.0.1", 9405, distance, state, complete)


def ask(candidates=(), claim=None, *, known=False, **more):
    return choose_role(Question(Uid("me"), candidates, claim, is_content_known=known, **more))


HOLDER = a_candidate("a", EntryState.CACHED, complete=True)
READER = a_candidate("b", EntryState.DOWNLOADING)
IDLE = a_candidate("c", EntryState.PENDING)
FAILED = a_candidate("d", EntryState.FAILED)
OTHER = a_candidate("z", EntryState.DOWNLOADING)


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        pytest.param(ask(), Role.READ, id="nobody else has the entry"),
        pytest.param(ask([IDLE]), Role.READ, id="the others wait as well"),
        pytest.param(ask([HOLDER], known=True), Role.FOLLOW, id="a node holds it"),
        pytest.param(ask([HOLDER], known=True, avoid={"a"}), Role.READ, id="but does not answer"),
        pytest.param(ask([READER]), Role.FOLLOW, id="a node reads, whatever is remembered"),
        pytest.param(
            ask([READER], known=True), Role.READ, id="of a known content all are at work: no sign"
        ),
        pytest.param(ask([IDLE], Claim("me", OLD)), Role.READ, id="the claim is the caller's"),
        pytest.param(ask([IDLE], Claim("c", FRESH)), Role.FOLLOW, id="another one's"),
        pytest.param(
            ask([], Claim("new", FRESH)), Role.FOLLOW, id="of a node that has not reported itself"
        ),
        pytest.param(ask([], Claim("new", OLD)), Role.READ, id="and never did"),
        pytest.param(ask([FAILED], Claim("d", FRESH)), Role.FOLLOW, id="its failure may be old"),
        pytest.param(ask([FAILED], Claim("d", OLD)), Role.READ, id="it has failed"),
        pytest.param(ask([IDLE], Claim("c", OLD), avoid={"c"}), Role.READ, id="it is silent"),
        pytest.param(ask([HOLDER], Claim("a", OLD)), Role.READ, id="it is done, but not adopted"),
        pytest.param(
            ask([IDLE, READER, OTHER], Claim("z", FRESH), avoid={"b", "c"}),
            Role.FOLLOW,
            id="two in a row have died, the third one reads",
        ),
        pytest.param(
            ask([IDLE, READER, FAILED, OTHER], Claim("z", FRESH), avoid={"b", "c", "d"}),
            Role.READ,
            id="it reaches nobody: no use in waiting for all others, one by one",
        ),
        pytest.param(
            ask([IDLE, READER, FAILED, HOLDER], known=True, avoid={"b", "c", "d"}),
            Role.FOLLOW,
            id="unless somebody holds what is known",
        ),
        pytest.param(
            ask([IDLE, READER, FAILED], avoid={"b", "c", "d"}, may_claim=False),
            Role.ASK_AGAIN,
            id="the leader is asked first",
        ),
        pytest.param(ask(may_claim=False), Role.ASK_AGAIN, id="only the leader lets anybody read"),
        pytest.param(
            ask(may_claim=False, waited_seconds=10), Role.READ, id="unless there is no leader"
        ),
        pytest.param(
            ask([HOLDER], known=True, may_claim=False), Role.FOLLOW, id="any replica knows holders"
        ),
    ],
)
def test_one_node_reads_the_source(role, expected):
    assert role is expected


def a_node(name, *, state=EntryState.CACHED, labels=None, entry=ENTRY, **more):
    status = CacheNodeStatus(
        peer=more.get("peer", PeerStatus(address="10.0.0.1", port=9405)),
        entries=(EntryStatus(uid="v1", state=state, content_digest=more.get("content")),),
        conditions=more.get("conditions", ()),
    )
    spec = CacheNodeSpec(node_uid=f"uid-{name}", entries=(entry,))
    uid = Uid(more.get("node_uid", f"uid-{name}"))
    node = replace(make_node(name, labels=labels or {}), uid=uid)
    return CacheNodeView(NodeName(name), Uid(f"cn-{name}"), spec, status), node


LOST = ConditionStatus(
    type="Ready", status="False", reason="NodeLost", last_transition_time="2026-01-01T00:00:00Z"
)


def find(*others, caller=None, content=None):
    found = find_candidates(
        caller, Uid("uid-me"), ENTRY, others, content_digest=content, topology=[ZONE, REGION]
    )
    return [(c.node_uid, c.distance, c.is_complete) for c in found]


def test_candidates_are_live_nodes_with_the_same_source_that_can_be_reached():
    other_source = ENTRY.model_copy(update={"source_digest": digest("b")})
    assert find(
        a_node("good"),
        a_node("me"),
        a_node("lost", conditions=(LOST,)),
        a_node("mute", peer=None),
        a_node("rebuilt", node_uid="uid-new"),
        a_node("else", entry=other_source),
        (a_node("gone")[0], None),
    ) == [("uid-good", 2, False)]


def test_complete_is_who_holds_the_adopted_content():
    assert find(
        a_node("a", content=digest("c")),
        a_node("b", content=digest("d")),
        a_node("c", content=digest("c"), state=EntryState.VERIFYING),
        content=digest("c"),
    ) == [("uid-a", 2, True), ("uid-b", 2, False), ("uid-c", 2, False)]


def test_near_is_who_shares_the_smallest_place():
    caller = make_node("me", labels={ZONE: "z1", REGION: "r1"})
    assert find(
        a_node("same", labels={ZONE: "z1", REGION: "r1"}),
        a_node("region", labels={ZONE: "z2", REGION: "r1"}),
        a_node("far", labels={ZONE: "z3", REGION: "r2"}),
        a_node("bare"),
        caller=caller,
    ) == [
        ("uid-same", 0, False),
        ("uid-region", 1, False),
        ("uid-far", 2, False),
        ("uid-bare", 2, False),
    ]


def test_holders_are_few_near_first_and_both_complete_and_partial():
    complete = [a_candidate(f"c{n}", EntryState.CACHED, complete=True) for n in range(30)]
    partial = [a_candidate(f"p{n}", EntryState.DOWNLOADING) for n in range(30)]
    near = a_candidate("near", EntryState.CACHED, distance=0, complete=True)
    holders = choose_holders(Uid("me"), [*complete, *partial, near, FAILED], frozenset({"c3"}))
    names = [holder.node_uid for holder in holders]
    assert len(names) == MAX_HOLDERS
    assert names[0] == "near"
    assert "c3" not in names
    assert "d" not in names
    assert sum(holder.is_complete for holder in holders) == MAX_HOLDERS // 2
    other = [h.node_uid for h in choose_holders(Uid("you"), complete, frozenset())]
    assert other != [h.node_uid for h in choose_holders(Uid("me"), complete, frozenset())]
    assert len(choose_holders(Uid("me"), complete, frozenset())) == MAX_HOLDERS


def test_who_is_waited_for_is_the_one_with_the_claim_or_else_one_that_reads():
    def named(claim, avoid=frozenset()):
        found = choose_awaited([IDLE, READER], claim, avoid)
        return [holder.node_uid for holder in found]

    assert named(Claim("c", 1)) == ["c"]
    assert named(None) == ["b"]
    assert named(Claim("unseen", 1), frozenset({"b"})) == []
