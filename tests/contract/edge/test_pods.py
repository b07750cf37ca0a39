"""The pods' door with real bound tokens: what one pod is granted, and everything that it is not."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import urllib.request
from dataclasses import replace

import pytest

from builders import make_cache, make_condition
from contract.edge.grants_door import MODEL, propose
from modelcache_operator.decide.world import ObjectKey

pytestmark = pytest.mark.cluster

VERSIONS, GRANTS = "/v1/pod/versions", "/v1/pod/grants"
ASK = {"modelVersion": "minilm-v1"}


@pytest.fixture
async def ready(door, tenants):
    """A Ready version of the first tenant."""
    entry = await door.add_version(MODEL)
    door.make_ready(entry, tenants[0], "minilm-v1")
    return entry


def token_of(credentials):
    return credentials.grant_token_file.read_text()


async def ask(door, token, body=ASK):
    return (await door.post(VERSIONS, token, body))[:2]


async def grant(door, token, uid):
    status, body, _ = await door.post(GRANTS, token, {"entries": [{"uid": uid}]})
    return status, body


def read(url, etag):
    request = urllib.request.Request(url, headers={"If-Match": etag})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


async def test_a_pod_without_a_node_gets_urls_that_work_and_both_are_written_down(
    door, pod, ready, caplog
):
    caplog.set_level(logging.INFO)
    status, version = await ask(door, token_of(pod))
    assert (status, version["uid"], version["sourceDigest"]) == (
        200,
        ready.uid,
        ready.source_digest,
    )
    status, body = await grant(door, token_of(pod), version["uid"])
    (granted,) = body["grants"]
    assert (status, granted["totalFiles"], granted.get("error")) == (200, 2, None)
    for file in granted["files"]:
        assert await asyncio.to_thread(read, file["url"], file["etag"]) == MODEL[file["path"]]
    assert door.answers == [(VERSIONS, 200), (GRANTS, 200)]
    who = f"pod {pod.namespace}/{pod.pod_name} ({pod.pod_uid})"
    assert f"{who} was granted ModelVersion {pod.namespace}/minilm-v1 ({ready.uid}" in caplog.text
    assert token_of(pod) not in caplog.text
    assert granted["files"][0]["url"] not in caplog.text


async def test_a_cache_stands_for_its_stable_version(door, pod, ready):
    key = ObjectKey(pod.namespace, "minilm")
    door.world.caches[key] = make_cache("minilm", namespace=pod.namespace, version="minilm-v1")
    status, version = await ask(door, token_of(pod), {"modelCache": "minilm"})
    assert (status, version["uid"], version["name"]) == (200, ready.uid, "minilm-v1")
    status, body = await ask(door, token_of(pod), {"modelCache": "nobody"})
    assert (status, body["error"]["reason"]) == (409, "ModelCacheNotFound")


async def test_what_agents_have_read_is_what_the_pod_must_find(door, pod, ready, agent):
    door.world.add_node(agent.name, agent.uid, [ready])
    await door.post("/v1/proposals", agent.token, propose(ready))
    _, body = await grant(door, token_of(pod), ready.uid)
    for file in body["grants"][0]["files"]:
        assert file["sha256"] == hashlib.sha256(MODEL[file["path"]]).hexdigest()


async def test_a_pod_of_another_namespace_is_refused_however_it_asks(
    door, make_pod, tenants, ready
):
    token = token_of(make_pod(tenants[1]))
    status, body = await ask(door, token)
    assert (status, body["error"]["reason"]) == (409, "ModelVersionNotFound")
    status, body = await ask(door, token, ASK | {"namespace": tenants[0]})
    assert (status, body["error"]["reason"]) == (409, "GrantRefused")
    assert f"runs in {tenants[1]}" in body["error"]["message"]
    _, there = await grant(door, token, ready.uid)
    _, absent = await grant(door, token, "no-such-uid")
    assert there["grants"][0]["error"] == absent["grants"][0]["error"]
    assert there["grants"][0]["error"]["reason"] == "NotKnownYet"
    assert await door.get(f"/v1/pod/files/{ready.uid}/0", token) == 503


async def test_a_token_that_is_bound_to_no_pod_is_refused(cluster, door, tenants, ready):
    path = f"/api/v1/namespaces/{tenants[0]}/serviceaccounts/default/token"
    asked = {"spec": {"audiences": ["modelcache-grant"], "expirationSeconds": 600}}
    token = cluster.api.create(path, asked)["status"]["token"]
    status, body = await ask(door, token)
    assert (status, body["reason"]) == (403, "GrantRefused")
    assert "not bound to a pod" in body["message"]
    assert (await grant(door, token, ready.uid))[0] == 403


async def test_a_token_for_another_audience_is_refused(door, pod, ready):
    status, body = await ask(door, pod.token_file.read_text())
    assert (status, body["reason"]) == (401, "GrantRefused")


async def test_an_agents_token_opens_nothing_here_and_a_pods_token_nothing_there(
    door, pod, ready, agent
):
    door.world.add_node(agent.name, agent.uid, [ready])
    status, body = await grant(door, agent.token, ready.uid)
    assert (status, body["reason"]) == (403, "GrantRefused")
    assert "agent" in body["message"]
    assert (await door.ask(token_of(pod), ready.uid))[0] == 403


async def test_a_pod_may_not_say_what_the_content_is(door, pod, ready):
    status, _, _ = await door.post("/v1/proposals", token_of(pod), propose(ready))
    assert status == 403
    assert door.adopted == []


async def test_a_version_that_is_not_ready_is_refused_with_its_own_reason(door, pod, ready):
    gone = make_condition("SourceGone", "False", message="nothing is there")
    door.make_ready(ready, pod.namespace, "minilm-v1", conditions=(gone,))
    status, body = await ask(door, token_of(pod))
    assert (status, body["error"]["reason"]) == (409, "ModelVersionNotReady")
    assert "SourceGone: nothing is there" in body["error"]["message"]
    _, body = await grant(door, token_of(pod), ready.uid)
    assert body["grants"][0]["error"]["reason"] == "ModelVersionNotReady"
    assert "files" not in body["grants"][0] or not body["grants"][0]["files"]


async def test_a_version_that_is_being_deleted_is_refused(door, pod, ready):
    version = door.world.versions[ready.uid]
    door.world.versions[ready.uid] = replace(version, is_deleted=True)
    assert (await ask(door, token_of(pod)))[1]["error"]["reason"] == "GrantRefused"


async def test_what_a_pod_says_of_its_node_changes_nothing(
    cluster, door, make_pod, tenants, ready, agent
):
    """An entry of a real node, wanted by a pod that runs there and one that claims to."""
    door.world.add_node(agent.name, agent.uid, [ready])
    for token in (
        token_of(make_pod(tenants[1])),
        token_of(make_pod(tenants[1], node=agent.name)),
    ):
        forged = {"node": agent.name, "nodeUid": agent.uid, "podUid": "another"}
        body = {"entries": [{"uid": ready.uid, **forged}], **forged}
        _, body, _ = await door.post(GRANTS, token, body)
        assert body["grants"][0]["error"]["reason"] == "NotKnownYet"
        status, body = await ask(door, token, ASK | forged)
        assert (status, body["error"]["reason"]) == (409, "ModelVersionNotFound")


async def test_a_pod_is_told_of_no_other_nodes(door, pod, ready, agent):
    door.world.add_node(agent.name, agent.uid, [ready])
    asked = {"entries": [{"uid": ready.uid, "peers": {"avoid": []}}]}
    _, body, _ = await door.post(GRANTS, token_of(pod), asked)
    assert "peers" not in body["grants"][0]


async def test_a_deleted_pods_token_is_refused(cluster, door, pod, ready):
    token = token_of(pod)
    assert (await ask(door, token))[0] == 200
    gone = ["--force", "--grace-period=0"]
    cluster.kubectl("-n", pod.namespace, "delete", "pod", pod.pod_name, *gone)
    await asyncio.sleep(0.6)  # the server believes a TokenReview for half a second here
    assert (await ask(door, token))[0] in (401, 403)


@pytest.mark.parametrize(
    "body", [{}, {"modelVersion": "a", "modelCache": "b"}, {"modelVersion": ""}, b"nonsense"]
)
async def test_a_question_must_name_one_thing(door, pod, ready, body):
    assert (await ask(door, token_of(pod), body))[0] == 400


async def test_a_closed_door_says_which_value_opens_it(door, pod, ready):
    door.is_open_for_pods = False
    await door.close()
    await door.open()
    for path in (VERSIONS, GRANTS):
        status, body, _ = await door.post(path, token_of(pod), {})
        assert (status, body["reason"]) == (403, "GrantRefused")
        assert "grants.forPods" in body["message"]
