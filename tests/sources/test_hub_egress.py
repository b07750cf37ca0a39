"""Where connections to a hub may lead, and how long they may last."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from fakes.hub_http import Told
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_hub_sources, make_version
from modelcache_api.manifest import SourceFile, make_source_manifest
from modelcache_operator.decide.allowed_sources import AllowList, AllowRule
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.client import Timeouts
from modelcache_testbed.waiting import wait_until

MODEL = {"config.json": b"{}"}


def version(endpoint, **more):
    return make_version("hf://org/name", endpoint=endpoint, **more)


async def test_a_refused_connection_is_unreachable(hub_sources):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = await fail(hub_sources, version(f"http://127.0.0.1:{unused.getsockname()[1]}"))
    assert found.reason == "EndpointUnreachable"
    assert "refuses connections" in found.message


async def test_a_name_that_does_not_resolve_is_unreachable(hub_sources):
    found = await fail(hub_sources, version("http://nowhere.invalid"))
    assert found.reason == "EndpointUnreachable"
    assert "nowhere.invalid" in found.message


async def test_a_silent_hub_is_unreachable_within_the_time_out(hub, data):
    sources = make_hub_sources(data, timeouts=Timeouts(read=0.3))
    hub.override = lambda _: Told(hang_seconds=1.0)
    found = await fail(sources, version(hub.url))
    await sources.close()
    assert found.reason == "EndpointUnreachable"
    assert "in time" in found.message


async def test_a_hub_that_drips_is_cut_off(hub, data):
    sources = make_hub_sources(data, timeouts=Timeouts(read=2.0, request=0.5))
    hub.override = lambda _: Told(200, b"x" * 100, drip_seconds=0.1)
    started = time.monotonic()
    found = await fail(sources, version(hub.url))
    assert time.monotonic() - started < 3.0
    assert found.reason == "EndpointUnreachable"
    hub.override = lambda _: None
    hub.add("org/name", MODEL)
    assert (await sources.resolve(version(hub.url))).files, "the cut connection is not used again"
    await sources.close()


async def test_an_endless_answer_is_not_kept_in_memory(hub, hub_sources):
    hub.override = lambda _: Told(200, b"x" * (18 * 1024 * 1024))
    found = await fail(hub_sources, version(hub.url))
    assert found.reason == "SourceError"
    assert "longer than" in found.message


async def test_an_answer_that_would_unpack_to_more_is_refused(hub, hub_sources):
    hub.override = lambda _: Told(200, b"\x1f\x8b", {"Content-Encoding": "gzip"})
    found = await fail(hub_sources, version(hub.url))
    assert "compressed" in found.message
    assert hub.requests[0].headers["accept-encoding"] == "identity"


async def test_loopback_needs_the_administrator(hub, data):
    sources = make_hub_sources(data, allow_list=AllowList())
    for host in ("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1"):
        wanted = version(f"http://{host}:{hub.port}")
        found = await fail(sources, wanted)
        assert found.reason == "SourceNotAllowed", host
        assert "loopback: true" in found.message
    await sources.close()
    assert not hub.requests


async def test_an_endpoint_that_becomes_loopback_later_is_not_signed_for(hub, data):
    """Small public files have an address that needs no question: it must not lead agents home."""
    manifest = make_source_manifest([SourceFile("config.json", 2, version_id="0a" * 20)], "0b" * 20)
    sources = make_hub_sources(data, allow_list=AllowList())
    public = await sources.sign(version("https://mirror.example"), manifest.files, "0b" * 20)
    assert public.files[0].url.startswith("https://mirror.example/org/name/resolve/0b")
    for host in ("127.0.0.1", "localhost", "x.localhost", "[::1]", "[::ffff:127.0.0.1]"):
        with pytest.raises(SourceError, match=r"SourceNotAllowed: .*loopback: true"):
            await sources.sign(version(f"http://{host}:{hub.port}"), manifest.files, "0b" * 20)
    await sources.close()


async def test_metadata_addresses_are_refused_even_where_loopback_is_allowed(hub_sources):
    for host in ("169.254.169.254", "2852039166", "[fe80::1]", "[::ffff:169.254.169.254]"):
        found = await fail(hub_sources, version(f"http://{host}"))
        assert found.reason == "SourceNotAllowed", host
        assert "always refused" in found.message


@pytest.mark.parametrize("part", ["/revision/", "/tree/", "/resolve/"])
async def test_a_redirect_is_judged_like_the_endpoint(hub, data, part):
    """The endpoint may be on loopback here, other servers there may not; metadata never."""
    hub.add("org/name", MODEL)
    rule = AllowRule(endpoints=(f"127.0.0.1:{hub.port}",), loopback=True)
    sources = make_hub_sources(data, allow_list=AllowList((rule,)))
    for target in ("http://169.254.169.254/latest", "http://127.0.0.1:9/x", "http://[::1]:9/x"):
        hub.override = lambda asked, target=target: (
            Told(307, headers={"Location": target}) if part in asked.path else None
        )
        if part == "/resolve/" and "169" in target:
            # Where only agents go, they judge; see tests/fetch/test_web.py.
            continue
        assert (await fail(sources, version(hub.url))).reason == "SourceNotAllowed", target
    await sources.close()


async def test_a_server_that_is_redirected_to_is_named_when_it_is_away(hub, hub_sources):
    target = "http://nowhere.invalid/api/models/org/name"
    hub.override = lambda _: Told(307, headers={"Location": target})
    found = await fail(hub_sources, version(hub.url))
    assert found.reason == "EndpointUnreachable"
    assert "redirects to nowhere.invalid:80" in found.message


async def test_the_public_hub_is_a_source_like_any_other(hub, data, monkeypatch):
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    hub.add("org/name", MODEL)
    sources = make_hub_sources(data, allow_list=AllowList((AllowRule(endpoints=("x",)),)))
    assert (await fail(sources, version(None))).reason == "SourceNotAllowed"
    allowed = make_hub_sources(data)
    assert (await allowed.resolve(version(None))).files, "HF_ENDPOINT of the operator's own"
    await allowed.close()
    await sources.close()


async def test_a_cluster_s_mirror_takes_the_public_hub_s_place_and_needs_a_rule_as_well(hub, data):
    hub.add("org/name", MODEL)
    named = AllowRule(endpoints=(f"127.0.0.1:{hub.port}",), loopback=True)
    mirrored = make_hub_sources(data, allow_list=AllowList((named,)), default_endpoint=hub.url)
    manifest = await mirrored.resolve(version(None))
    page = await mirrored.sign(version(None), manifest.files, manifest.revision)
    assert {file.url.startswith((hub.url, hub.cdn.url)) for file in page.files} == {True}
    other = version("http://169.254.169.254")
    assert "169.254.169.254" in (await fail(mirrored, other)).message, "a version's own goes first"
    elsewhere = AllowList((AllowRule(endpoints=("huggingface.co",), loopback=True),))
    refused = make_hub_sources(data, allow_list=elsewhere, default_endpoint=hub.url)
    assert (await fail(refused, version(None))).reason == "SourceNotAllowed"
    await refused.close()
    await mirrored.close()


async def test_a_cancelled_resolve_ends_its_listing(hub, data):
    sources = make_hub_sources(data)
    hub.page_files = 1
    hub.add("org/name", {f"{n}.txt": b"x" for n in range(1000)})
    task = asyncio.create_task(sources.resolve(version(hub.url)))
    await asyncio.to_thread(wait_until, lambda: len(hub.requests) > 3, seconds=5, what="pages")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.2)
    seen = len(hub.requests)
    await asyncio.sleep(0.2)
    assert len(hub.requests) == seen < 1000
    await sources.close()


async def test_a_listing_that_takes_too_long_or_never_ends_is_given_up(hub, data):
    sources = make_hub_sources(data, resolve_seconds=0.5)
    hub.add("org/name", MODEL)
    more = {"Link": f'<{hub.url}/api/models/org/name/tree/x?cursor=1>; rel="next"'}
    hub.override = lambda asked: Told(200, b"[]", more) if "/tree/" in asked.path else None
    found = await fail(sources, version(hub.url))
    await sources.close()
    assert "takes too long" in found.message


async def test_a_version_without_a_kept_commit_is_not_signed(hub_sources, hub):
    with pytest.raises(SourceError, match="names no commit"):
        await hub_sources.sign(version(hub.url), ())
