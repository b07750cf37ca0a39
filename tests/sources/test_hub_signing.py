"""Where agents are sent, and that the token stays where it is."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from fakes.fetch_world import until
from fakes.hub_http import Told
from fakes.hub_server import HubServer
from fakes.source_world import make_hub_sources, make_version
from fakes.tls_world import PrivateAuthority
from modelcache_api.manifest import SourceFile
from modelcache_operator.decide.allowed_sources import AllowList, AllowRule
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.ports.sources import SourceError

WEIGHTS = b"weights " * 1000
MODEL = {"a b/config.json": b"{}", "model.safetensors": WEIGHTS}
PRIVATE = {"is_private": True, "admitted": {"hf_example"}}


def version(hub, **more):
    return make_version("hf://org/name", endpoint=hub.url, **more)


async def sign(sources, wanted, manifest=None):
    manifest = manifest or await sources.resolve(wanted)
    page = await sources.sign(wanted, manifest.files, manifest.revision)
    assert [file.path for file in page.files] == [file.path for file in manifest.files]
    return page.files


async def refused(sources, wanted) -> SourceError:
    with pytest.raises(SourceError) as caught:
        await sign(sources, wanted)
    return caught.value


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read()


async def test_large_files_are_read_at_the_cdn_and_small_ones_at_the_commit(hub, hub_sources):
    commit = hub.add("org/name", MODEL).references["main"]
    small, large = await sign(hub_sources, version(hub))
    assert small.url == f"{hub.url}/org/name/resolve/{commit}/a%20b/config.json"
    assert large.url.startswith(f"{hub.cdn.url}/repos/")
    assert abs(large.expires_at - time.time() - 3600) < 5, "as the address says itself"
    assert (await asyncio.to_thread(get, small.url)) == b"{}"
    assert (await asyncio.to_thread(get, large.url)) == WEIGHTS


async def test_C05_the_cdn_refuses_who_asks_for_the_hubs_etag(hub, hub_sources):
    """Which is why no file has one: X-Linked-Etag is no ETag of the server that is read."""
    repository = hub.add("org/name", MODEL)
    manifest = await hub_sources.resolve(version(hub))
    _, large = await sign(hub_sources, version(hub), manifest)
    sha256 = repository.commits[manifest.revision]["model.safetensors"].sha256
    with pytest.raises(urllib.error.HTTPError, match="412"):
        await asyncio.to_thread(get, large.url, **{"If-Match": f'"{sha256}"'})
    assert [file.etag for file in manifest.files] == [None, None]


async def test_the_token_goes_to_the_hub_and_nowhere_else(hub, hub_sources):
    hub.add("org/name", MODEL, **PRIVATE)
    small, large = await sign(hub_sources, version(hub, secret="hub"))
    assert small.url is None, "the operator hands it over"
    assert "hf_example" not in repr((small, large))
    assert small.headers == large.headers == ()
    assert {one.headers.get("authorization") for one in hub.requests} == {"Bearer hf_example"}
    assert hub.cdn.requests == [], "the operator itself does not even go there"
    assert (await asyncio.to_thread(get, large.url)) == WEIGHTS
    with pytest.raises(urllib.error.HTTPError, match="400"):
        await asyncio.to_thread(get, large.url, Authorization="Bearer hf_example")


async def test_small_private_files_are_read_with_the_token_and_checked(hub, hub_sources):
    hub.add("org/name", MODEL, **PRIVATE)
    wanted = version(hub, secret="hub")
    manifest = await hub_sources.resolve(wanted)
    small = manifest.files[0]
    assert await hub_sources.read(wanted, small, manifest.revision) == b"{}"
    assert await hub_sources.read(wanted, small, manifest.revision) == b"{}"
    assert len(hub.asked("GET", "/resolve/")) == 1, "many nodes cost the hub one question"
    hub.override = lambda asked: Told(200, b"[]") if "/resolve/" in asked.path else None
    other = SourceFile("a b/config.json", 2, version_id="0a" * 20)
    sources = make_hub_sources(hub_sources._data)
    with pytest.raises(SourceError, match="SourceChanged"):
        await sources.read(wanted, other, manifest.revision)
    await sources.close()


async def test_what_has_an_address_or_is_large_is_not_handed_over(hub, hub_sources):
    hub.add("org/name", MODEL, **PRIVATE)
    hub.add("org/open", MODEL)
    manifest = await hub_sources.resolve(version(hub, secret="hub"))
    huge = SourceFile("huge.bin", 17 * 1024 * 1024, version_id="0a" * 20)
    asked = len(hub.requests)
    for wanted, file in (
        (version(hub, secret="hub"), huge),
        (make_version("hf://org/open", endpoint=hub.url), manifest.files[0]),
    ):
        with pytest.raises(SourceError, match="SourceInvalid"):
            await hub_sources.read(wanted, file, manifest.revision)
    assert len(hub.requests) == asked


async def test_a_hub_that_serves_large_files_itself(hub, hub_sources, monkeypatch):
    """As mirrors do. Without a token that is an address like any other; with one, it is none."""
    hub.add("org/name", MODEL, admitted={"hf_example"})

    def serve(asked):
        if asked.method != "HEAD" or "safetensors" not in asked.path:
            return None
        commit = asked.path.split("/")[4]
        return Told(200, headers={"Content-Length": str(len(WEIGHTS)), "X-Repo-Commit": commit})

    hub.override = serve
    _, large = await sign(hub_sources, version(hub))
    assert large.url.startswith(f"{hub.url}/org/name/resolve/")
    _, large = await sign(hub_sources, version(hub, secret="hub"))
    assert large.url is None, "it is small enough to be handed over"
    module = "modelcache_operator.sources.hub.small_files.MAX_FILE_BYTES"
    monkeypatch.setattr(module, 100)
    found = await refused(make_hub_sources(hub_sources._data), version(hub, secret="hub"))
    assert found.reason == "SourceInvalid"
    assert "never leaves the operator" in found.message


async def test_a_large_file_in_git_itself_that_only_the_token_reads_is_refused_at_once(
    hub, hub_sources, monkeypatch
):
    monkeypatch.setattr("modelcache_operator.sources.hub.small_files.MAX_FILE_BYTES", 100)
    hub.add("org/name", {"data.json": b" " * 101, "model.safetensors": WEIGHTS}, **PRIVATE)
    found = await refused(hub_sources, version(hub, secret="hub"))
    assert found.reason == "SourceInvalid"
    assert "data.json" in found.message


async def test_a_slow_hub_of_one_namespace_does_not_keep_others_waiting(hub, data):
    sources = make_hub_sources(data, sign_threads=4, sign_at_once=2)
    hub.add("org/name", {f"{n}.safetensors": b"%d" % n for n in range(8)})
    manifest = await sources.resolve(version(hub))
    with HubServer() as slow:
        slow.add("org/name", {}).commits = hub.repositories["org/name"].commits
        gate = hold(slow)
        waiting = asyncio.create_task(sign(sources, version(slow), manifest))
        await until(lambda: len(slow.requests) == 2)
        await sign(sources, replace(version(hub), key=ObjectKey("other", "v1")), manifest)
        assert len(slow.requests) == 2
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
    assert len(slow.requests) == 2, "what nobody waits for is not asked"
    await sources.close()


def hold(hub) -> threading.Event:
    """Keep all answers until the event."""
    gate = threading.Event()
    hub.override = lambda _: gate.wait(10) and None
    return gate


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"X-Repo-Commit": "0a" * 20}, id="another commit"),
        pytest.param({"X-Linked-Size": "7"}, id="another size"),
    ],
)
async def test_a_mirror_that_answers_for_something_else(hub, hub_sources, headers):
    hub.add("org/name", MODEL)
    answer = hub.answer
    hub.answer = lambda asked: Told(
        (told := answer(asked)).status,
        told.body,
        {**told.headers, **(headers if asked.method == "HEAD" else {})},
    )
    assert (await refused(hub_sources, version(hub))).reason == "SourceChanged"


async def test_addresses_are_shared_for_a_while_and_then_asked_for_anew(hub, data):
    now = [time.time()]
    sources = make_hub_sources(data, clock=lambda: now[0], monotonic=lambda: now[0])
    hub.cdn.clock = lambda: now[0]
    hub.add("org/name", MODEL)
    manifest = await sources.resolve(version(hub))
    asked = len(hub.asked("HEAD"))
    first, again = [(await sign(sources, version(hub), manifest))[1] for _ in range(2)]
    assert (first, len(hub.asked("HEAD"))) == (again, asked + 1)
    now[0] += 301
    later = (await sign(sources, version(hub), manifest))[1]
    assert later.expires_at > first.expires_at
    await sources.close()


@pytest.mark.parametrize("step", [-2 * 86_400, 2 * 86_400], ids=["back", "forward"])
async def test_C62_a_step_of_the_clock_keeps_no_address_for_longer(hub, data, step):
    """The wall clock alone steps: the addresses of before are as old as they are."""
    wall, passed = [time.time()], [0.0]
    sources = make_hub_sources(data, clock=lambda: wall[0], monotonic=lambda: passed[0])
    hub.cdn.clock = lambda: wall[0]
    hub.add("org/name", MODEL)
    manifest = await sources.resolve(version(hub))
    before = (await sign(sources, version(hub), manifest))[1]
    wall[0] += step
    assert (await sign(sources, version(hub), manifest))[1] == before, "it is a moment old"
    passed[0] += 301
    after = (await sign(sources, version(hub), manifest))[1]
    assert after.expires_at == pytest.approx(before.expires_at + step, abs=2)
    assert (await asyncio.to_thread(get, after.url)) == WEIGHTS
    await sources.close()


async def test_C11_a_rotated_bundle_works_without_a_restart(hub_sources, data):
    old, new = PrivateAuthority(), PrivateAuthority()
    data.put_config_map("ca", {"ca.crt": old.pem})
    for authority in (old, new):
        with HubServer() as tls_hub:
            tls_hub.speak_tls(authority.context())
            tls_hub.cdn.speak_tls(authority.context())
            tls_hub.add("org/name", MODEL)
            wanted = version(tls_hub, bundle="ca")
            if authority is new:
                assert (await refused(hub_sources, wanted)).reason == "TLSFailed"
                data.put_config_map("ca", {"ca.crt": new.pem})
            manifest = await hub_sources.resolve(wanted)
            page = await hub_sources.sign(wanted, manifest.files, manifest.revision)
            assert page.ca_bundle == authority.pem.decode()


async def test_what_a_token_has_seen_is_not_shown_to_others(hub, hub_sources, data):
    hub.add("org/name", MODEL, **PRIVATE)
    manifest = await hub_sources.resolve(version(hub, secret="hub"))
    await sign(hub_sources, version(hub, secret="hub"), manifest)
    hub.tokens.add("hf_other")
    data.put_secret("other", HF_TOKEN="hf_other")
    for secret, reason in ((None, "AuthFailed"), ("other", "SourceGone")):
        with pytest.raises(SourceError, match=reason):
            await sign(hub_sources, version(hub, secret=secret), manifest)
    data.put_secret("hub", HF_TOKEN="hf_other")
    with pytest.raises(SourceError, match="SourceGone"):
        await sign(hub_sources, version(hub, secret="hub"), manifest)


async def test_a_redirect_of_the_api_to_another_server_loses_the_token(hub, hub_sources):
    hub.add("org/name", MODEL, **PRIVATE)
    with HubServer() as other:
        other.add("org/name", MODEL)
        other.repositories["org/name"].commits = hub.repositories["org/name"].commits
        hub.override = lambda asked: Told(308, headers={"Location": f"{other.url}{asked.raw_path}"})
        await hub_sources.resolve(version(hub, secret="hub", include=["**"]))
        assert all("authorization" in one.headers for one in hub.requests)
        assert other.requests
        assert not any("authorization" in one.headers for one in other.requests)


async def test_a_next_page_on_another_server_loses_the_token(hub, hub_sources):
    hub.add("org/name", {f"{n}.txt": b"x" for n in range(5)}, **PRIVATE)
    hub.page_files = 2
    with HubServer() as other:
        other.page_files = 2
        other.add("org/name", {f"{n}.txt": b"x" for n in range(5)})
        hub.next_page_host = other.url
        await hub_sources.resolve(version(hub, secret="hub"))
        assert len(other.requests) == 2
        assert not any("authorization" in one.headers for one in other.requests)


async def test_loopback_of_a_cdn_takes_a_rule_that_covers_it(hub, data):
    hub.add("org/name", MODEL)
    rules = (AllowRule(endpoints=(f"127.0.0.1:{hub.port}",), loopback=True), AllowRule())
    sources = make_hub_sources(data, allow_list=AllowList(rules))
    found = await refused(sources, version(hub))
    assert found.reason == "SourceNotAllowed"
    assert f"127.0.0.1:{hub.cdn.port}" in found.message
    rules = (*rules, AllowRule(endpoints=(f"127.0.0.1:{hub.cdn.port}",), loopback=True))
    sources._allow_list = lambda: AllowList(rules)
    assert (await sign(sources, version(hub)))[1].url.startswith(hub.cdn.url)
    await sources.close()


async def test_no_one_is_sent_from_https_to_http(hub, hub_sources, data):
    authority = PrivateAuthority()
    data.put_config_map("ca", {"ca.crt": authority.pem})
    with HubServer() as tls_hub:
        tls_hub.speak_tls(authority.context())
        tls_hub.add("org/name", MODEL)
        found = await refused(hub_sources, version(tls_hub, bundle="ca"))
        assert found.reason == "SourceNotAllowed"
        assert "https to http" in found.message
        tls_hub.cdn.speak_tls(authority.context())
        files = await sign(hub_sources, version(tls_hub, bundle="ca"))
        assert files[1].url.startswith("https://")


async def test_C11_a_private_ca_is_refused_without_and_trusted_with_its_bundle(hub_sources, data):
    authority = PrivateAuthority()
    with HubServer() as tls_hub:
        tls_hub.speak_tls(authority.context())
        tls_hub.cdn.speak_tls(authority.context())
        tls_hub.add("org/name", MODEL)
        found = await refused(hub_sources, version(tls_hub))
        assert found.reason == "TLSFailed"
        assert "certificate" in found.message
        data.put_config_map("ca", {"ca.crt": PrivateAuthority().pem})
        assert (await refused(hub_sources, version(tls_hub, bundle="ca"))).reason == "TLSFailed"
        data.put_config_map("ca", {"ca.crt": authority.pem})
        wanted = version(tls_hub, bundle="ca")
        manifest = await hub_sources.resolve(wanted)
        page = await hub_sources.sign(wanted, manifest.files, manifest.revision)
        assert page.ca_bundle == authority.pem.decode()


async def test_many_files_are_asked_for_at_the_same_time(hub, hub_sources):
    hub.add("org/name", {f"{n:03}.safetensors": b"%d" % n for n in range(60)})
    manifest = await hub_sources.resolve(version(hub))
    before = len(hub.requests)
    gate = hold(hub)
    signing = asyncio.create_task(sign(hub_sources, version(hub), manifest))
    await until(lambda: len(hub.requests) == before + 8)
    gate.set()
    assert len(await signing) == 60
