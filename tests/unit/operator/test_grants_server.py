"""The door's answers when something behind it fails. Real tokens: tests/contract/edge."""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import aiohttp
import pytest

from fakes.seen_world import SeenWorld
from fakes.tls_world import PrivateAuthority
from modelcache_agent.peers.credentials import PeerCredentials as AgentCredentials
from modelcache_api.log_fields import about, add_fields, make_trace_header
from modelcache_api.names import Reason
from modelcache_api.wire import CertificateRequest, CertificateResponse
from modelcache_kube.errors import ApiUnavailable
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.world import NodeName, Uid
from modelcache_operator.grant_authentication import DeniedError
from modelcache_operator.grants_server import GrantsServer, ServerSettings
from modelcache_operator.peer_credentials import PeerCredentials
from modelcache_operator.ports.authority import Authority

BODY = b'{"entries": [{"uid": "u"}]}'


class Authenticator:
    error: Exception | None = None

    async def authenticate(self, _):
        if self.error is not None:
            raise self.error
        return Caller(NodeName("n1"), Uid("u"), "p", "pu")


class Service:
    error: Exception | None = None

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def grant(self, caller, request):
        self.asked.set()
        if self.error is not None:
            raise self.error
        await asyncio.sleep(3600)


@pytest.fixture
def parts():
    return Service(), Authenticator()


@pytest.fixture
async def knock(parts):
    authority = PrivateAuthority()
    settings = ServerSettings(grant_seconds=0.2)
    server = GrantsServer(*parts, SeenWorld(), clock=lambda: 0.0, settings=settings)
    port = await server.start("127.0.0.1", 0, authority.context())
    trust = ssl.create_default_context(cadata=authority.pem.decode())

    async def post(path="/v1/grants", data=BODY, headers=None):
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{port}{path}"
            async with session.post(url, data=data, headers=headers, ssl=trust) as answer:
                return answer.status, await answer.json(), answer.headers.get("Retry-After")

    yield post
    await server.stop()
    await server.stop()


async def test_an_api_server_that_is_away_means_later(parts, knock):
    parts[1].error = ApiUnavailable("503: no", code=503, retry_after=7)
    status, body, retry_after = await knock()
    assert (status, body["reason"], retry_after) == (503, "OperatorUnreachable", "8")


async def test_a_node_that_is_not_seen_yet_is_told_apart_from_a_denial(parts, knock):
    parts[1].error = DeniedError(HTTPStatus.FORBIDDEN, "no", reason=Reason.NOT_KNOWN_YET)
    status, body, _ = await knock()
    assert (status, body["reason"]) == (403, "NotKnownYet")
    parts[1].error = DeniedError(HTTPStatus.FORBIDDEN, "no")
    status, body, _ = await knock()
    assert (status, body["reason"]) == (403, "GrantRefused")


async def test_an_answer_that_takes_too_long_is_given_up(knock):
    status, body, retry_after = await knock()
    assert (status, body["reason"]) == (504, "OperatorUnreachable")
    assert retry_after is not None


async def test_a_bug_is_logged_by_its_place_and_without_its_words(parts, knock, caplog):
    caplog.set_level(logging.DEBUG)
    parts[0].error = RuntimeError("https://store/key?X-Amz-Signature=abc")
    status, body, _ = await knock()
    assert (status, body["message"]) == (500, "the operator failed")
    assert "RuntimeError" in caplog.text
    assert "X-Amz-Signature" not in caplog.text


async def test_a_node_that_sends_slowly_holds_its_own_places_only(knock):
    release = asyncio.Event()

    async def slow_body():
        yield b"{"
        await release.wait()

    held = [asyncio.create_task(knock("/v1/proposals", slow_body())) for _ in range(2)]
    await asyncio.sleep(0.3)
    status, body, retry_after = await knock("/v1/proposals", b"{}")
    assert (status, body["reason"]) == (429, "Throttled")
    assert retry_after is not None
    release.set()
    assert [answer[0] for answer in await asyncio.gather(*held)] == [400, 400]
    assert (await knock("/v1/proposals", b"{}"))[0] == 400


async def test_agents_are_certified_in_the_name_of_their_own_node():
    authority = PrivateAuthority()
    credentials = PeerCredentials(
        lambda: Authority(authority.pair),
        life=timedelta(hours=1),
        now=lambda: datetime.now(UTC),
    )
    server = GrantsServer(
        Service(), Authenticator(), SeenWorld(), clock=lambda: 0.0, credentials=credentials
    )
    port = await server.start("127.0.0.1", 0, authority.context())
    url = f"https://127.0.0.1:{port}/v1/certificates"
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    agent = AgentCredentials()
    try:
        async with aiohttp.ClientSession() as session:
            for key, status in ((agent.public_key, 200), ("no key", 400)):
                body = CertificateRequest(public_key=key).model_dump_json(by_alias=True)
                async with session.post(url, data=body, ssl=trust) as answer:
                    assert answer.status == status
                    document = await answer.json()
                if status == 200:
                    agent.use(CertificateResponse.model_validate(document))
    finally:
        await server.stop()
    assert agent.is_certified


async def test_without_peers_nobody_is_certified(knock):
    authority = PrivateAuthority()
    server = GrantsServer(Service(), Authenticator(), SeenWorld(), clock=lambda: 0.0)
    port = await server.start("127.0.0.1", 0, authority.context())
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    try:
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{port}/v1/certificates"
            async with session.post(url, data=b"{}", ssl=trust) as answer:
                assert answer.status == 404
    finally:
        await server.stop()


async def test_a_refusal_in_the_log_tells_the_trace_that_the_agent_sent(parts, knock, caplog):
    trace, told = "0af7651916cd43dd8448eb211c80319c", []
    parts[0].error = DeniedError(HTTPStatus.FORBIDDEN, "not yours")

    class Tell(logging.Handler):
        def emit(self, record):
            told.append(add_fields(record.getMessage()))

    handler = Tell()
    logger = logging.getLogger("modelcache_operator.grants_server")
    logger.addHandler(handler)
    caplog.set_level(logging.INFO, logger.name)
    try:
        with about(trace=trace):
            await knock(headers=make_trace_header())
        await knock(headers={"traceparent": "evil\tvalue"})
    finally:
        logger.removeHandler(handler)
    assert told == [
        f"/v1/grants refused: not yours trace={trace} node=n1",
        "/v1/grants refused: not yours node=n1",
    ]


async def test_a_request_that_takes_long_does_not_outlast_the_pods_grace(parts):
    authority = PrivateAuthority()
    settings = ServerSettings(grant_seconds=60.0, last_answers_seconds=0.1)
    server = GrantsServer(*parts, SeenWorld(), clock=lambda: 0.0, settings=settings)
    port = await server.start("127.0.0.1", 0, authority.context())
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    url = f"https://127.0.0.1:{port}/v1/grants"
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(session.post(url, data=BODY, ssl=trust))
        await asyncio.wait_for(parts[0].asked.wait(), 10)
        await asyncio.wait_for(server.stop(), 10)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert ServerSettings().last_answers_seconds < 15
