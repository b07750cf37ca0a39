"""Where connections may lead, how long they may last, and as whom they are made."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from fakes.s3_stub import Answer, S3Stub, listing, script_listing
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_sources, make_version
from modelcache_operator.decide.allowed_sources import AllowList
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.client import Timeouts
from modelcache_testbed.waiting import wait_until


async def test_a_refused_connection_is_unreachable(sources):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        found = await fail(sources, make_version("s3://models/m", endpoint=endpoint))
    assert found.reason == "EndpointUnreachable"
    assert "refuses connections" in found.message


async def test_a_silent_store_is_unreachable_within_the_time_out(data):
    sources = make_sources(data, timeouts=Timeouts(read=0.3))
    with S3Stub(lambda _: Answer(hang_seconds=1.0)) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    await sources.close()
    assert found.reason == "EndpointUnreachable"
    assert "in time" in found.message


async def test_a_broken_connection_is_unreachable(sources):
    with S3Stub(lambda _: Answer(cut=True)) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "EndpointUnreachable"


async def test_a_name_that_does_not_resolve_is_unreachable(sources):
    found = await fail(sources, make_version("s3://models/m", endpoint="http://nowhere.invalid"))
    assert found.reason == "EndpointUnreachable"
    assert "nowhere.invalid" in found.message


async def test_loopback_needs_the_administrator(data):
    sources = make_sources(data, allow_list=AllowList())
    with S3Stub(lambda _: Answer()) as stub:
        for host in ("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1"):
            version = make_version("s3://models/m", endpoint=f"http://{host}:{stub.port}")
            found = await fail(sources, version)
            assert found.reason == "SourceNotAllowed", host
            assert "loopback: true" in found.message
            with pytest.raises(SourceError, match="SourceNotAllowed"):
                await sources.sign(version, ())
    await sources.close()
    assert not stub.requests


async def test_metadata_addresses_are_refused_even_where_loopback_is_allowed(sources):
    for host in ("169.254.169.254", "2852039166", "[fe80::1]", "[::ffff:169.254.169.254]"):
        found = await fail(sources, make_version("s3://models/m", endpoint=f"http://{host}"))
        assert found.reason == "SourceNotAllowed", host
        assert "always refused" in found.message


async def test_a_name_that_changes_after_the_check_is_caught_at_the_connection(data, monkeypatch):
    async def no_check(*_):
        pass

    monkeypatch.setattr("modelcache_operator.sources.s3.check_names", no_check)
    sources = make_sources(data, allow_list=AllowList())
    with S3Stub(lambda _: Answer()) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    await sources.close()
    assert found.reason == "SourceNotAllowed"
    assert not stub.requests


async def test_the_operators_own_identity_is_never_used(data, monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:1\n")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AMBIENT",
        "AWS_SECRET_ACCESS_KEY": "ambient",
        "AWS_PROFILE": "nope",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_CA_BUNDLE": "/nowhere",
        "AWS_DEFAULTS_MODE": "auto",
        "HTTP_PROXY": "http://127.0.0.1:1",
    }.items():
        monkeypatch.setenv(name, value)
    sources = make_sources(data)
    with S3Stub(script_listing(listing(["m/a"]))) as stub:
        await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
        await sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint, secret="keys"))
    await sources.close()
    sent = [request.headers.get("authorization") for request in stub.requests]
    assert sent[0] is None
    assert "AKEXAMPLE" in sent[-1]
    assert not any("AMBIENT" in text for text in sent if text)


async def test_a_cancelled_resolve_ends_its_listing(data):
    sources = make_sources(data)
    pages = [listing([f"m/{n}"], token=str(n + 1)) for n in range(1000)]
    paced = script_listing(*pages)
    with S3Stub(paced) as stub:
        task = asyncio.create_task(
            sources.resolve(make_version("s3://models/m", endpoint=stub.endpoint))
        )
        await asyncio.to_thread(wait_until, lambda: len(stub.requests) > 2, seconds=5, what="pages")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.2)
        seen = len(stub.requests)
        await asyncio.sleep(0.2)
        assert len(stub.requests) == seen < 1000
    await sources.close()


async def test_a_store_that_drips_is_cut_off(data):
    sources = make_sources(data, timeouts=Timeouts(read=2.0, request=0.5))
    for drip in ("body", "head"):
        answer = Answer(200, "x" * 100, drip_seconds=0.1, drip=drip)
        with S3Stub(lambda _, answer=answer: answer) as stub:
            started = time.monotonic()
            found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
            assert time.monotonic() - started < 3.0
        assert found.retry_after_seconds is not None
    await sources.close()


async def test_an_endless_answer_is_not_kept_in_memory(sources):
    with S3Stub(lambda _: Answer(200, "x" * (17 * 1024 * 1024))) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    assert found.reason == "SourceError"
    assert "longer than" in found.message


async def test_a_listing_that_takes_too_long_is_given_up(data):
    sources = make_sources(data, resolve_seconds=0.3)
    pages = [listing([f"m/{n}"], token=str(n + 1)) for n in range(1000)]
    slow = script_listing(*(replace(page, hang_seconds=0.05) for page in pages))
    with S3Stub(slow) as stub:
        found = await fail(sources, make_version("s3://models/m", endpoint=stub.endpoint))
    await sources.close()
    assert "takes too long" in found.message
