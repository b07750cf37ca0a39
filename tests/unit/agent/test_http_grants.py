"""The conversation with the operator, over real HTTPS."""

from __future__ import annotations

import asyncio

import pytest

from fakes.grants_server import GrantedVersion, GrantsServer
from fakes.tls_world import PrivateAuthority
from modelcache_agent.adapters.http_grants import HttpGrants
from modelcache_agent.adapters.operator_http import OperatorHttp
from modelcache_agent.fetch import GrantUnavailableError
from modelcache_agent.ports.grants import MustWaitError
from modelcache_api.manifest import make_content_manifest
from modelcache_api.names import Reason
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import SlotAnswer, SlotQuery, WireError
from modelcache_kube import boot_seconds

BODIES = {f"part-{number:02}.bin": bytes([number]) * 10 for number in range(7)}


@pytest.fixture
def server():
    with GrantsServer(lambda uid, path: f"http://store/{uid}/{path}") as server:
        server.versions["v1"] = GrantedVersion(dict(BODIES))
        yield server


@pytest.fixture
async def grants(server, tmp_path):
    (tmp_path / "token").write_text("token-1\n")
    http = OperatorHttp(
        server.url, ca_file=server.write_ca(tmp_path), token_file=tmp_path / "token"
    )
    yield HttpGrants(http)
    await http.close()


def entry_for(version, uid="v1", **changes):
    source = version.source
    entry = EntrySpec(uid=uid, source_digest=source.digest, size_bytes=source.size_bytes)
    return entry.model_copy(update=changes)


async def refusal(awaitable) -> GrantUnavailableError:
    with pytest.raises(GrantUnavailableError) as caught:
        await awaitable
    return caught.value


async def test_all_pages_are_read_and_checked(server, grants):
    server.page_files = 3
    version = server.versions["v1"]
    opened = await grants.open(entry_for(version))
    assert opened.source == version.source
    assert (opened.contents, opened.content_digest) == ({}, None)
    assert len(server.requests) == 3
    assert (await grants.current("v1", "part-06.bin")).url == "http://store/v1/part-06.bin"


async def test_known_content_comes_with_the_grant(server, grants):
    version = server.versions["v1"]
    version.knows_content = True
    opened = await grants.open(entry_for(version))
    assert opened.contents == version.contents
    assert opened.content_digest == version.content_digest


async def test_C11_a_refresh_brings_the_authorities_that_are_trusted_now(server, grants):
    version = server.versions["v1"]
    version.ca_bundle = "old"
    opened = await grants.open(entry_for(version))
    assert opened.ca_bundle == "old"
    version.ca_bundle = "new"
    assert (await grants.refresh("v1", "part-03.bin")).ca_bundle == "new"


async def test_a_refresh_is_shared_by_all_who_ask_at_once(server, grants):
    await grants.open(entry_for(server.versions["v1"]))
    before = len(server.requests)
    old = await grants.current("v1", "part-03.bin")
    fresh = await asyncio.gather(*(grants.refresh("v1", "part-03.bin") for _ in range(5)))
    assert len(server.requests) == before + 1
    assert fresh[0].expires_at > old.expires_at
    assert len({id(file) for file in fresh}) == 1


async def test_a_path_in_place_of_a_url_is_one_of_the_operators(server, grants, tmp_path):
    server.url_of = lambda uid, path: f"/v1/files/{uid}/{path}"
    await grants.open(entry_for(server.versions["v1"]))
    file = await grants.current("v1", "part-00.bin")
    assert file.url == f"{server.url}/v1/files/v1/part-00.bin"
    assert file.headers == {"Authorization": "Bearer token-1"}
    assert file.ca_bundle == server.authority.pem.decode()
    (tmp_path / "token").write_text("token-2")
    fresh = await grants.refresh("v1", "part-00.bin")
    assert fresh.headers == {"Authorization": "Bearer token-2"}
    (tmp_path / "token").unlink()
    error = await refusal(grants.refresh("v1", "part-00.bin"))
    assert error.reason is Reason.OPERATOR_UNREACHABLE


async def test_the_token_is_read_anew_for_each_request(server, grants, tmp_path):
    await grants.open(entry_for(server.versions["v1"]))
    (tmp_path / "token").write_text("token-2")
    await grants.refresh("v1", "part-00.bin")
    assert server.tokens == ["token-1", "token-2"]


@pytest.mark.parametrize(
    ("bodies", "changes", "reason", "says"),
    [
        pytest.param(BODIES, {"source_digest": "sha256:" + "0" * 64}, Reason.SOURCE_CHANGED,
                     "sourceDigest", id="another source than the entry's"),
        pytest.param(BODIES, {"size_bytes": 5}, Reason.GRANT_REFUSED, "reserves 5",
                     id="more bytes than were reserved"),
        pytest.param({"../x": b"x"}, {}, Reason.UNSAFE_KEY, "unsafe path", id="a path that leaves"),
        pytest.param({"a": b"x", "a/b": b"y"}, {}, Reason.UNSAFE_KEY, "folder",
                     id="a file that is a folder"),
        pytest.param({}, {}, Reason.GRANT_REFUSED, "no files", id="nothing"),
    ],
)  # fmt: skip
async def test_a_grant_for_something_else_is_refused_before_any_byte(
    server, grants, bodies, changes, reason, says
):
    version = server.versions["v1"] = GrantedVersion(bodies)
    error = await refusal(grants.open(entry_for(version, **changes)))
    assert error.reason is reason
    assert says in error.message


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, Reason.OPERATOR_UNREACHABLE),
        (503, Reason.OPERATOR_UNREACHABLE),
        (429, Reason.OPERATOR_UNREACHABLE),
        (401, Reason.GRANT_REFUSED),
        (403, Reason.GRANT_REFUSED),
        (302, Reason.GRANT_REFUSED),
    ],
)
async def test_statuses_become_reasons(server, grants, status, reason):
    server.failing_status = status
    error = await refusal(grants.open(entry_for(server.versions["v1"])))
    assert error.reason is reason
    assert str(status) in error.message


@pytest.mark.parametrize(
    ("said", "reason"),
    [("SourceGone", Reason.SOURCE_GONE), ("FromTheFuture", Reason.GRANT_REFUSED)],
)
async def test_the_operators_reason_is_passed_on(server, grants, said, reason):
    server.versions["v1"].error = WireError(reason=said, message="it is so")
    error = await refusal(grants.open(entry_for(server.versions["v1"])))
    assert (error.reason, error.message) == (reason, "it is so")
    assert error.retry_after_seconds == 60.0


async def test_an_entry_that_is_not_known_yet_is_asked_for_again_soon_over_a_new_connection(
    server, grants
):
    version = server.versions["v1"]
    await grants.open(entry_for(version))
    server.versions.clear()
    error = await refusal(grants.open(entry_for(version)))
    assert (error.reason, error.retry_after_seconds) == (Reason.NOT_KNOWN_YET, 1.0)
    server.versions["v1"] = version
    await grants.open(entry_for(version))
    await grants.open(entry_for(version))
    first, refused, again, last = server.callers
    assert first == refused
    assert again != refused
    assert last == again


async def test_a_proposal_for_an_entry_that_is_not_known_yet_moves_on_too(server, grants):
    version = server.versions["v1"]
    version.refusal = WireError(reason="NotKnownYet", message="no such entry")
    content = make_content_manifest(version.contents.values())
    error = await refusal(grants.propose(entry_for(version), content))
    assert (error.reason, error.retry_after_seconds) == (Reason.NOT_KNOWN_YET, 1.0)
    version.refusal = None
    await grants.propose(entry_for(version), content)
    assert len(set(server.callers)) == 2


@pytest.mark.parametrize(
    ("said", "reason", "pause", "connections"),
    [
        pytest.param("NotKnownYet", Reason.NOT_KNOWN_YET, 1.0, 2, id="a node not seen yet"),
        pytest.param("GrantRefused", Reason.GRANT_REFUSED, 60.0, 1, id="a denial"),
        pytest.param("FromTheFuture", Reason.GRANT_REFUSED, 60.0, 1, id="a newer word"),
    ],
)
async def test_a_403_is_a_denial_unless_it_says_otherwise(
    server, grants, said, reason, pause, connections
):
    server.failing_status = 403
    server.failing_body = WireError(reason=said, message="no").model_dump_json().encode()
    error = await refusal(grants.open(entry_for(server.versions["v1"])))
    assert (error.reason, error.retry_after_seconds) == (reason, pause)
    server.failing_status = None
    await grants.open(entry_for(server.versions["v1"]))
    assert len(set(server.callers)) == connections


async def test_an_operator_that_is_away(server, tmp_path):
    http = OperatorHttp("https://127.0.0.1:9", ca_file=server.write_ca(tmp_path), token_file=None)
    error = await refusal(HttpGrants(http).open(entry_for(server.versions["v1"])))
    await http.close()
    assert error.reason is Reason.OPERATOR_UNREACHABLE
    assert error.retry_after_seconds == 10.0


async def test_a_foreign_authority_is_not_trusted_and_a_replaced_file_is(server, grants, tmp_path):
    ca = tmp_path / "operator-ca.crt"
    ca.write_bytes(PrivateAuthority().pem)
    error = await refusal(grants.open(entry_for(server.versions["v1"])))
    assert error.reason is Reason.OPERATOR_UNREACHABLE
    assert "TLS" in error.message
    assert server.requests == []
    ca.write_bytes(server.authority.pem)
    await grants.open(entry_for(server.versions["v1"]))


async def test_the_first_proposal_is_adopted_and_a_different_one_refused(server, grants):
    version = server.versions["v1"]
    entry = entry_for(version)
    content = make_content_manifest(version.contents.values())
    assert await grants.propose(entry, content) == content.digest
    other = make_content_manifest(GrantedVersion({"a": b"z"}).contents.values())
    error = await refusal(grants.propose(entry, other))
    assert error.reason is Reason.DIGEST_MISMATCH


async def test_urls_are_forgotten(server, grants):
    await grants.open(entry_for(server.versions["v1"]))
    grants.forget("v1")
    error = await refusal(grants.current("v1", "part-00.bin"))
    assert error.reason is Reason.GRANT_REFUSED


async def test_a_full_limit_is_waited_for_and_its_lease_counts_from_the_question(server, grants):
    entry = entry_for(server.versions["v1"])
    server.slot = SlotAnswer(message="2 nodes read s3://m/ now", ask_again_seconds=3)
    with pytest.raises(MustWaitError) as wait:
        await grants.open(entry, 7.0)
    assert wait.value.slot == server.slot
    asked = server.requests[-1][1]["entries"][0]["slot"]
    assert (asked["wants"], asked["waitedSeconds"]) == (True, 7.0)
    server.slot = SlotAnswer(lease_seconds=40, bytes_per_second=1000)
    before = boot_seconds()
    opened = await grants.open(entry)
    assert opened.slot.answer.bytes_per_second == 1000
    assert before <= opened.slot.asked_at <= opened.slot.until - 40 <= boot_seconds()
    await grants.refresh("v1", "part-06.bin")
    assert not server.requests[-1][1]["entries"][0]["slot"]["wants"], "a page asks for no slot"


async def test_a_slot_is_renewed_at_the_replica_that_leads(server, grants):
    held = SlotQuery(holds=True, bytes_per_second=5)
    server.slot = SlotAnswer(leads=False)
    assert not (await grants.ask_slot("v1", held)).answer.leads
    server.slot = SlotAnswer(lease_seconds=40)
    assert (await grants.ask_slot("v1", held)).answer.is_granted
    path, asked = server.requests[-1]
    assert (path, asked["uid"], asked["slot"]["bytesPerSecond"]) == ("/v1/slots", "v1", 5)
    assert len(set(server.callers)) == 2, "a new connection may lead to another replica"
