"""Where connections for a plain web server may lead, whom they trust, how long they may last."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from fakes.hub_http import Told
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_version, make_web_sources
from fakes.tls_world import PrivateAuthority
from fakes.web_sites import StaticSite, WebServer, write_files
from modelcache_api.manifest import SourceFile
from modelcache_operator.decide.allowed_sources import AllowList, AllowRule
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.client import Timeouts
from modelcache_testbed.waiting import wait_until

ONE = {"m.bin": b"weights"}
PLAIN = ("https://", "http://")


def one(url):
    return make_version(f"{url}/m.bin")


async def test_http_needs_a_rule_that_names_it(web, data):
    web.put(ONE)
    sources = make_web_sources(data, allow_list=AllowList((AllowRule(loopback=True),)))
    found = await fail(sources, one(web.url))
    assert found.reason == "SourceNotAllowed"
    assert not web.requests
    await sources.close()


async def test_loopback_needs_the_administrator_and_metadata_is_refused_always(web, data):
    web.put(ONE)
    sources = make_web_sources(data, allow_list=AllowList((AllowRule(uri_prefixes=PLAIN),)))
    for host in ("127.0.0.1", "localhost", "x.localhost", "[::1]", "2130706433", "0x7f.1"):
        wanted = one(f"http://{host}:{web.port}")
        found = await fail(sources, wanted)
        assert (found.reason, "loopback: true" in found.message) == ("SourceNotAllowed", True), host
        # Agents trust such a spelling; what DNS makes of others they judge themselves.
        if not host[0].isdecimal() or host == "127.0.0.1":
            with pytest.raises(SourceError, match="SourceNotAllowed"):
                await sources.sign(wanted, [SourceFile("m.bin", 7, '"v1"')])
    await sources.close()
    anywhere = make_web_sources(data)
    for host in ("169.254.169.254", "2852039166", "[fe80::1]", "[::ffff:169.254.169.254]"):
        found = await fail(anywhere, one(f"http://{host}"))
        assert (found.reason, "always refused" in found.message) == ("SourceNotAllowed", True), host
    await anywhere.close()
    assert not web.requests


async def test_a_redirect_is_followed_and_its_end_is_what_counts(web, web_sources, monkeypatch):
    """To another server, as releases lead to a CDN; both are on loopback here, so nobody judges."""
    monkeypatch.setattr(
        "modelcache_operator.sources.web.target.describe_refused_address", lambda *_: None
    )
    with WebServer() as cdn:
        cdn.put({"x/blob": b"weights"}, etag='"cdn"')
        location = {"Location": f"{cdn.url}/x/blob?sig=1#part", "ETag": '"hop"'}
        web.override = lambda _: Told(302, b"moved", location)
        found = await web_sources.resolve(one(web.url))
        assert found.files[0].etag == '"cdn"'
        page = await web_sources.sign(one(web.url), found.files)
        assert page.files[0].url == f"{web.url}/m.bin", (
            "nodes follow it anew: it may be short-lived"
        )
        assert {asked.headers["host"] for asked in cdn.requests} == {f"127.0.0.1:{cdn.port}"}


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest", "http://127.0.0.1:9/x", "http://[::1]:9/x", "http://0/x"],
)
async def test_a_redirect_is_judged_after_DNS_like_any_address(web, web_sources, method, target):
    """The URI's own server may be on loopback; where it redirects to may not, as on the nodes."""
    web.put(ONE)
    moved = Told(307, headers={"Location": target})
    web.override = lambda asked: moved if asked.method == method else None
    found = await fail(web_sources, one(web.url))
    assert found.reason == "SourceNotAllowed"


async def test_a_name_that_DNS_leads_home_is_refused(web, web_sources, monkeypatch):
    web.put(ONE)
    resolve = lambda host, port, **_: [(2, 1, 6, "", ("127.0.0.1", port))]  # noqa: E731
    monkeypatch.setattr("modelcache_operator.sources.connections.socket.getaddrinfo", resolve)
    sources_rule = AllowList((AllowRule(uri_prefixes=PLAIN),))
    web_sources._allow_list = lambda: sources_rule
    found = await fail(web_sources, one(f"http://public.example:{web.port}"))
    assert found.reason == "SourceNotAllowed"
    assert not web.requests


async def test_a_server_that_is_away_is_named(web, web_sources):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = await fail(web_sources, one(f"http://127.0.0.1:{unused.getsockname()[1]}"))
    assert (found.reason, "refuses connections" in found.message) == ("EndpointUnreachable", True)
    found = await fail(web_sources, one("https://nowhere.invalid"))
    assert (found.reason, "nowhere.invalid" in found.message) == ("EndpointUnreachable", True)
    web.override = lambda _: Told(307, headers={"Location": "http://nowhere.invalid/m.bin"})
    found = await fail(web_sources, one(web.url))
    assert "redirects to nowhere.invalid:80" in found.message


async def test_a_server_that_drips_is_cut_off(web, data):
    sources = make_web_sources(data, timeouts=Timeouts(read=5.0, request=0.5))
    web.override = lambda _: Told(200, b"x" * 1000, drip_seconds=0.1)
    started = time.monotonic()
    found = await fail(sources, make_version(f"{web.url}/"))
    await sources.close()
    assert time.monotonic() - started < 50, "not for as long as it drips"
    assert found.reason == "EndpointUnreachable"


async def test_a_cancelled_resolve_ends_its_questions(web, data):
    sources = make_web_sources(data, at_once=2)
    files = {f"{n}.bin": b"x" for n in range(1000)}
    web.put(
        {**files, "SHA256SUMS": b"".join(b"%s  %s\n" % (b"0a" * 32, f.encode()) for f in files)}
    )
    task = asyncio.create_task(sources.resolve(make_version(f"{web.url}/")))
    await asyncio.to_thread(wait_until, lambda: len(web.requests) > 3, seconds=20, what="questions")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.2)
    seen = len(web.requests)
    await asyncio.sleep(0.2)
    assert len(web.requests) == seen < 1000
    await sources.close()


async def test_C11_a_private_authority_is_trusted_by_its_bundle_and_handed_on(
    data, web_sources, tmp_path
):
    authority = PrivateAuthority()
    write_files(tmp_path, ONE)
    data.put_config_map("bundle", {"ca.crt": authority.pem})
    data.put_config_map("other", {"ca.crt": PrivateAuthority().pem})
    with StaticSite(tmp_path, authority.context()) as site:
        for bundle in (None, "other"):
            found = await fail(web_sources, make_version(f"{site.url}/m.bin", bundle=bundle))
            assert found.reason == "TLSFailed"
            assert "caBundleRef" in found.message
        version = make_version(f"{site.url}/m.bin", bundle="bundle")
        found = await web_sources.resolve(version)
        assert (await web_sources.sign(version, found.files)).ca_bundle == authority.pem.decode()
    missing = await fail(web_sources, make_version("https://x.example/m.bin", bundle="none"))
    assert missing.reason == "CABundleInvalid"


async def test_a_redirect_from_https_to_http_is_refused(data, web_sources):
    authority = PrivateAuthority()
    data.put_config_map("bundle", {"ca.crt": authority.pem})
    with WebServer() as secure, WebServer() as plain:
        secure.speak_tls(authority.context())
        secure.override = lambda _: Told(302, headers={"Location": f"{plain.url}/m.bin"})
        found = await fail(web_sources, make_version(f"{secure.url}/m.bin", bundle="bundle"))
        assert (found.reason, "https to http" in found.message) == ("SourceNotAllowed", True)
        assert not plain.requests
