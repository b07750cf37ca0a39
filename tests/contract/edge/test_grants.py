"""The agents' door with real bound tokens: what is granted, and everything that is not."""

from __future__ import annotations

import asyncio
import gzip
import logging
import urllib.request
from dataclasses import replace

import pytest

from contract.edge.grants_door import MODEL, propose
from modelcache_api.manifest import SourceFile, make_source_manifest
from modelcache_operator.grants_server import ServerSettings

pytestmark = pytest.mark.cluster


def fetch(file) -> bytes:
    request = urllib.request.Request(file["url"], headers={"If-Match": file["etag"]})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


async def test_an_agent_gets_urls_for_its_entry_and_they_work(door, agent, entry, caplog):
    caplog.set_level(logging.DEBUG)
    status, body = await door.ask(agent.token, entry.uid)
    grant = body["grants"][0]
    assert status == 200
    assert (grant["totalFiles"], grant["offset"], grant.get("error")) == (2, 0, None)
    listed = [SourceFile(file["path"], file["sizeBytes"], file["etag"]) for file in grant["files"]]
    assert make_source_manifest(listed).digest == grant["sourceDigest"] == entry.source_digest
    for file in grant["files"]:
        assert await asyncio.to_thread(fetch, file) == MODEL[file["path"]]
        assert file["url"] not in caplog.text
        assert file["url"].partition("Signature=")[2] not in caplog.text
    assert agent.token not in caplog.text
    assert door.answers == [("/v1/grants", 200)]


async def test_pages_follow_the_manifest(door, agent, entry):
    _, first = await door.ask(agent.token, entry.uid, limit=1)
    _, second = await door.ask(agent.token, entry.uid, limit=1, offset=1)
    _, beyond = await door.ask(agent.token, entry.uid, offset=2)
    paths = [page["grants"][0]["files"] for page in (first, second, beyond)]
    assert [[file["path"] for file in files] for files in paths] == [
        ["config.json"],
        ["model.safetensors"],
        [],
    ]
    assert beyond["grants"][0]["totalFiles"] == 2


async def test_a_token_for_another_audience_is_refused(door, agent, entry):
    status, body = await door.ask(agent.api_token, entry.uid)
    assert (status, body["reason"]) == (401, "GrantRefused")
    assert "grants" not in body


@pytest.mark.parametrize("token", [None, "nonsense", "a.b.c"])
async def test_without_a_valid_token_nothing_is_said(door, entry, token):
    status, body = await door.ask(token, entry.uid)
    assert (status, body["reason"]) == (401, "GrantRefused")


async def test_another_service_account_is_refused(door, make_agent, entry):
    other = make_agent(account="modelcache-operator")
    door.world.add_node(other.name, other.uid, [entry])
    status, _ = await door.ask(other.token, entry.uid)
    assert status == 403


async def test_another_nodes_entry_looks_like_one_that_does_not_exist(door, make_agent, entry):
    stranger = make_agent()
    door.world.add_node(stranger.name, stranger.uid)
    status, body = await door.ask(stranger.token, entry.uid, "no-such-uid")
    there, absent = body["grants"]
    assert status == 200
    assert there["error"] == absent["error"]
    assert there["error"]["reason"] == "NotKnownYet"
    assert set(there) == set(absent)
    for uid in (entry.uid, "no-such-uid"):
        asked = propose(entry, uid=uid)
        status, body, _ = await door.post("/v1/proposals", stranger.token, asked)
        assert (status, body["error"]) == (409, there["error"])


async def test_a_deleted_pods_token_is_refused(cluster, door, agent, entry):
    assert (await door.ask(agent.token, entry.uid))[0] == 200
    where = agent.credentials
    gone = ["--force", "--grace-period=0"]
    cluster.kubectl("-n", where.namespace, "delete", "pod", where.pod_name, *gone)
    await asyncio.sleep(0.6)  # the server believes a TokenReview for half a second here
    assert (await door.ask(agent.token, entry.uid))[0] in (401, 403)


async def test_a_rebuilt_node_of_the_same_name_starts_anew(cluster, door, agent, entry):
    door.world.add_node(agent.name, "uid-of-the-rebuilt", [entry])
    status, body = await door.ask(agent.token, entry.uid)
    assert (status, body["reason"]) == (403, "NotKnownYet")
    door.world.add_node(agent.name, agent.uid, [entry])
    rebuilt = replace(
        door.world.cache_nodes[agent.name],
        spec=door.world.cache_nodes[agent.name].spec.model_copy(update={"node_uid": "other"}),
    )
    door.world.cache_nodes[agent.name] = rebuilt
    status, body = await door.ask(agent.token, entry.uid)
    assert (status, body["grants"][0]["error"]["reason"]) == (200, "NotKnownYet")
    del door.world.nodes[agent.name]
    assert (await door.ask(agent.token, entry.uid))[0] == 403


async def test_a_version_that_is_gone_is_refused_like_any_other(door, agent, entry):
    version = door.world.versions[entry.uid]
    door.world.versions[entry.uid] = replace(version, is_deleted=True)
    _, body = await door.ask(agent.token, entry.uid)
    assert body["grants"][0]["error"]["reason"] == "GrantRefused"


async def test_a_source_that_cannot_be_signed_says_why_and_nothing_more(door, agent, entry):
    del door.data.secrets["store"]
    _, body = await door.ask(agent.token, entry.uid)
    error = body["grants"][0]["error"]
    assert error["reason"] == "SecretNotFound"
    assert "store" not in error["message"]


async def test_oversized_bodies_are_refused_however_they_come(door, agent, entry):
    await door.reopen(ServerSettings(grant_body_bytes=1000, proposal_body_bytes=2000))
    large = b" " * 3000

    async def chunks():
        for _ in range(100):
            yield b" " * 100

    for path in ("/v1/grants", "/v1/proposals"):
        assert (await door.post(path, agent.token, large))[0] == 413
        assert (await door.post(path, agent.token, chunks()))[0] == 413
        bomb = gzip.compress(b" " * 3_000_000)
        status, _, _ = await door.post(path, agent.token, bomb, **{"Content-Encoding": "gzip"})
        assert status == 413


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b"{}", b'{"entries": []}', b'{"entries": [{"uid": ""}]}']
)
async def test_what_is_no_request_is_refused_without_an_echo(door, agent, entry, body):
    status, answer, _ = await door.post("/v1/grants", agent.token, body)
    assert status == 400
    assert "nonsense" not in answer["message"]


async def test_unknown_fields_are_ignored(door, agent, entry):
    asked = {"entries": [{"uid": entry.uid, "future": 1}], "future": {}}
    status, _, _ = await door.post("/v1/grants", agent.token, asked)
    assert status == 200


async def test_a_node_that_asks_too_often_waits(door, agent, entry):
    await door.reopen(ServerSettings(grants_per_second=0.1, grants_burst=2))
    statuses = [(await door.ask(agent.token, entry.uid))[0] for _ in range(3)]
    assert statuses == [200, 200, 429]
    _, body, headers = await door.post("/v1/grants", agent.token, {"entries": [{"uid": "x"}]})
    assert body["reason"] == "Throttled"
    assert int(headers["Retry-After"]) >= 1


async def test_before_the_world_was_seen_nothing_is_refused_for_good(door, agent, entry):
    door.world.is_synced = False
    assert await door.get_health() == 503
    status, body = await door.ask(agent.token, entry.uid)
    assert (status, body["reason"]) == (503, "OperatorUnreachable")
    door.world.is_synced = True
    assert await door.get_health() == 200
