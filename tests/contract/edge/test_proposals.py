"""Which contents are adopted, with real bound tokens."""

from __future__ import annotations

import hashlib
import json

import pytest
from blake3 import blake3

from contract.edge.grants_door import MODEL, propose
from modelcache_api.manifest import SourceFile, make_source_manifest
from modelcache_operator.decide.world import Uid

pytestmark = pytest.mark.cluster


async def test_C50_the_first_content_is_adopted_and_granted_to_the_next(
    door, agent, entry, make_agent
):
    status, body, _ = await door.post("/v1/proposals", agent.token, propose(entry))
    assert (status, body.get("error")) == (200, None)
    adopted = body["contentDigest"]
    assert door.adopted == [entry.uid]
    _, body = await door.ask(agent.token, entry.uid)
    grant = body["grants"][0]
    assert grant["contentDigest"] == adopted
    for file in grant["files"]:
        assert file["sha256"] == hashlib.sha256(MODEL[file["path"]]).hexdigest()
        assert file["pieces"] == [blake3(MODEL[file["path"]]).hexdigest()]
    again, body, _ = await door.post("/v1/proposals", agent.token, propose(entry))
    assert (again, body["contentDigest"]) == (200, adopted)
    other = MODEL | {"config.json": b"[]"}
    status, body, _ = await door.post("/v1/proposals", agent.token, propose(entry, other))
    assert (status, body["error"]["reason"]) == (409, "DigestMismatch")
    assert adopted in body["error"]["message"]
    assert body["error"]["message"].count("sha256:") == 2


async def test_a_pin_refuses_other_bytes_and_names_both_digests(door, agent):
    pin = "sha256:" + "0" * 64
    entry = await door.add_version(MODEL, digest=pin)
    door.world.add_node(agent.name, agent.uid, [entry])
    status, body, _ = await door.post("/v1/proposals", agent.token, propose(entry))
    assert (status, body["error"]["reason"]) == (409, "DigestMismatch")
    assert pin in body["error"]["message"]
    assert body["error"]["message"].count("sha256:") == 2
    assert await door.manifests.get_content(Uid(entry.uid)) is None


@pytest.mark.parametrize(
    ("files", "more", "reason"),
    [
        pytest.param({"config.json": b"{}"}, {}, "DigestMismatch", id="a file is missing"),
        pytest.param(MODEL | {"x": b""}, {}, "DigestMismatch", id="a file too many"),
        pytest.param(MODEL | {"config.json": b"12345"}, {}, "DigestMismatch", id="another size"),
        pytest.param(
            MODEL, {"sourceDigest": "sha256:" + "1" * 64}, "SourceChanged", id="another source"
        ),
    ],
)
async def test_a_proposal_that_is_not_of_the_source_is_refused(
    door, agent, entry, files, more, reason
):
    asked = propose(entry, files, **more)
    status, body, _ = await door.post("/v1/proposals", agent.token, asked)
    assert (status, body["error"]["reason"]) == (409, reason)
    assert await door.manifests.get_content(Uid(entry.uid)) is None


async def test_a_large_proposal_is_taken(door, agent):
    files = {f"part-{number:04}": b"" for number in range(5000)}
    entry = await door.add_version({"part-0000": b""})
    source = make_source_manifest(SourceFile(path, 0, '"e"') for path in files)
    await door.manifests.put_source(Uid(entry.uid), source)
    entry = entry.model_copy(update={"source_digest": source.digest})
    door.world.add_node(agent.name, agent.uid, [entry])
    rows = [{"path": p, "sizeBytes": 0, "sha256": "a" * 64, "pieces": []} for p in files]
    asked = json.dumps(propose(entry, {}) | {"files": rows}).encode()
    status, body, _ = await door.post("/v1/proposals", agent.token, asked)
    assert (status, body.get("error")) == (200, None)
    _, body = await door.ask(agent.token, entry.uid, *[entry.uid] * 4)
    counts = [len(grant.get("files", ())) for grant in body["grants"]]
    assert counts == [500, 500, 500, 500, 0]
    assert body["grants"][-1]["error"]["reason"] == "Throttled"
