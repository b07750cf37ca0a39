"""Questions to a server of metrics: the administrator's address, bounded, over TLS with a token."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from fakes.prometheus_stand_in import prometheus_stand_in
from fakes.tls_world import PrivateAuthority
from modelcache_api.names import Reason
from modelcache_operator.adapters.prometheus import PrometheusServer
from modelcache_operator.decide.rollout import Trouble


@pytest.fixture
async def server():
    async with prometheus_stand_in() as stand_in:
        yield stand_in


async def test_a_query_reaches_the_server_as_it_is_below_its_path(server):
    server.values = {'sum(rate(x{a="b"}[5m])) > 1 & 2': "0.25"}
    client = PrometheusServer(server.url)
    assert await client.ask('sum(rate(x{a="b"}[5m])) > 1 & 2') == 0.25
    assert (await client.ask("something else")).reason is Reason.GATE_NO_DATA
    assert server.asked[0]["token"] is None


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            {"status": 307, "headers": {"Location": "http://127.0.0.1:1/"}}, id="redirect"
        ),
        pytest.param({"status": 500, "text": "oops"}, id="an error of the server"),
        pytest.param({"text": "<html>"}, id="a page"),
    ],
)
async def test_redirects_are_not_followed_and_pages_are_no_number(server, answer):
    server.raw = web.Response(**answer)
    trouble = await PrometheusServer(server.url).ask("x")
    assert trouble.reason is Reason.GATE_UNREACHABLE
    assert len(server.asked) == 1


async def test_an_answer_without_end_is_cut_off(server):
    server.values, server.padding = {"x": "1"}, 70_000
    trouble = await PrometheusServer(server.url).ask("x")
    assert trouble.reason is Reason.GATE_UNREACHABLE
    assert "more than 65536 bytes" in trouble.message


async def test_a_server_that_is_away_or_hangs_is_given_up():
    refused = await PrometheusServer("http://127.0.0.1:1").ask("x")
    assert refused.reason is Reason.GATE_UNREACHABLE

    async def hang(_reader, _writer):
        await asyncio.sleep(60)

    hanging = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}"
    try:
        trouble = await PrometheusServer(url, seconds=0.2).ask("x")
    finally:
        hanging.close()
    assert trouble == Trouble(
        Reason.GATE_UNREACHABLE, "Prometheus cannot be asked: no answer within 0.2 s"
    )


async def test_the_token_goes_to_the_server_whose_certificate_is_trusted(tmp_path):
    authority = PrivateAuthority()
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    ca.write_bytes(authority.pem)
    token.write_text("first\n")
    async with prometheus_stand_in(authority.context()) as server:
        server.values = {"x": "1"}
        client = PrometheusServer(server.url, ca, token)
        assert await client.ask("x") == 1
        token.write_text("second\n")
        assert await client.ask("x") == 1
        assert [one["token"] for one in server.asked] == ["Bearer first", "Bearer second"]
        stranger = await PrometheusServer(server.url, None, token).ask("x")
        assert stranger.reason is Reason.GATE_UNREACHABLE
        ca.unlink()
        assert (await client.ask("x")).reason is Reason.GATE_UNREACHABLE
        assert len(server.asked) == 2
