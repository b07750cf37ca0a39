"""From a plain web server to a node's disk: the operator's door, a whole agent, its engine."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.agent_bench import Bench
from fakes.fetch_world import content_of, safetensors_body
from fakes.hub_door import HubDoor
from fakes.hub_http import Told
from fakes.played_cluster import PlayedCluster
from fakes.source_world import make_version
from fakes.store_world import read_tree, tree_of
from fakes.tls_world import PrivateAuthority
from fakes.web_sites import LATER, LONG_AGO, Page, StaticSite, write_checksums, write_files
from modelcache_api.manifest import make_content_manifest

MIB = 1 << 20
WEIGHTS = safetensors_body(33 * MIB)
OTHERS = safetensors_body(33 * MIB, 7)
MODEL = {"config.json": b"{}", "1_Pooling/config.json": b"{ }", "model.safetensors": WEIGHTS}
NAME = "model.safetensors"


@dataclass
class Node:
    """One agent and its operator."""

    door: HubDoor
    bench: Bench
    folder: Path

    def started(self, *extra):
        token = self.door.write_token(self.folder)
        self.bench.cluster.nudge()
        return self.bench.started(f"--grant-token-file={token}", *extra)

    async def want(self, version) -> None:
        self.bench.cluster.want(await self.door.resolve(version))

    async def holds(self):
        """Wait until the version is cached; its files."""
        await self.bench.until_state("v1", "Cached")
        return read_tree(tree_of(self.bench.root, self.door.manifests.contents["v1"].digest))

    async def fails(self, reason) -> str:
        await self.bench.until_state("v1", "Failed", reason)
        assert "v1" not in self.door.manifests.contents
        return self.bench.cluster.entry("v1").message


@pytest.fixture
async def node(web_sources, tmp_path):
    door = HubDoor(web_sources)
    await door.open()
    (tmp_path / "store").mkdir()
    yield Node(door, Bench(tmp_path / "store", door, None, PlayedCluster()), tmp_path)
    await door.close()


def version_of(url, **more):
    return make_version(url, uid="v1", **more)


async def test_C11_a_folder_with_checksums_reaches_the_disk_over_tls(node, data, tmp_path):
    """A real server, sha256sum's own file, a private authority; every checksum is the server's."""
    authority = PrivateAuthority()
    data.put_config_map("bundle", {"ca.crt": authority.pem})
    write_files(tmp_path / "www" / "minilm", MODEL)
    write_checksums(tmp_path / "www" / "minilm")
    with StaticSite(tmp_path / "www", authority.context()) as site:
        await node.want(version_of(f"{site.url}/minilm/", bundle="bundle"))
        async with node.started():
            assert await node.holds() == MODEL
        assert set(site.served("GET", f"/minilm/{NAME}")) == {206}
    content = node.door.manifests.contents["v1"]
    assert content == make_content_manifest(content_of(*item) for item in MODEL.items())


async def test_the_standard_librarys_server_is_enough(node, tmp_path):
    """It knows no ETag, no range and no guard: only a date, which each answer must repeat."""
    write_files(tmp_path / "www", MODEL)
    for path in MODEL:
        os.utime(tmp_path / "www" / path, (1, 1))
    handler = functools.partial(_Quiet, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        await node.want(version_of(f"http://127.0.0.1:{server.server_port}/", files=list(MODEL)))
        async with node.started():
            assert await node.holds() == MODEL
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def replace_at(web, page, request=2):
    """Put another file in place before so many ranges of the weights were answered."""
    seen = []

    def count(asked):
        if asked.method == "GET" and NAME in asked.path:
            seen.append(asked)
            if len(seen) == request:
                web.pages[NAME] = page
        # What was asked for is answered by the site, as it is now.

    web.override = count
    return seen


GUARDS = [
    pytest.param('"v1"', None, Page(OTHERS, '"v2"'), True, id="ETag"),
    pytest.param('"v1"', None, Page(OTHERS, '"v2"'), False, id="ETag, If-Match ignored"),
    pytest.param(None, LONG_AGO, Page(OTHERS, None, LATER), True, id="date"),
    pytest.param(None, LONG_AGO, Page(OTHERS, None, LATER), False, id="date, its guard ignored"),
    pytest.param(None, LONG_AGO, Page(OTHERS, None, None), False, id="a date no longer told"),
    pytest.param('W/"v1"', LONG_AGO, Page(OTHERS, 'W/"v1"', LATER), False, id="a weak ETag"),
]


@pytest.mark.parametrize(("etag", "date", "after", "knows_guards"), GUARDS)
async def test_C12_a_file_replaced_half_way_is_an_error_never_a_mixture(
    node, web, etag, date, after, knows_guards
):
    web.put(MODEL, etag, date)
    web.knows_guards = knows_guards
    await node.want(version_of(f"{web.url}/{NAME}"))
    seen = replace_at(web, after)
    async with node.started("--streams=1"):
        message = await node.fails("SourceChanged")
    assert NAME in message
    asked = [one.headers for one in seen]
    guard = ("if-match", etag) if date is None else ("if-unmodified-since", date)
    assert {one.get(guard[0]) for one in asked} == {guard[1]}
    assert {name in one for one in asked for name in ("if-match", "if-unmodified-since")} == {
        True,
        False,
    }, "one guard, not two"


async def stop_half_way(node, web):
    """End an agent that has read a first part and waits for the second."""
    web.put(MODEL, None, LONG_AGO)
    await node.want(version_of(f"{web.url}/{NAME}"))
    asked, gate = [], threading.Event()

    def hold(one):
        if one.method != "GET":
            return None
        asked.append(one)
        if len(asked) == 1:
            return None
        gate.wait(30)
        return Told(cut=True)

    web.override = hold
    async with node.started("--streams=1"):
        await node.bench.until(lambda: len(asked) > 1, "a first part to be there")
        gate.set()
    web.override = lambda _: None
    web.requests.clear()


async def test_C13_a_transfer_that_was_ended_goes_on_where_it_was(node, web):
    await stop_half_way(node, web)
    sent = web.sent_bytes
    async with node.started("--streams=1"):
        assert await node.holds() == {NAME: WEIGHTS}
    assert web.sent_bytes - sent <= len(WEIGHTS) - 8 * MIB, "what was proved is not read again"


@pytest.mark.parametrize("body", [OTHERS, OTHERS[: 9 * MIB]], ids=["as long", "shorter"])
async def test_C12_a_partial_of_a_replaced_source_is_not_continued(node, web, body):
    await stop_half_way(node, web)
    web.put({NAME: body}, None, LATER)
    async with node.started("--streams=1"):
        await node.fails("SourceChanged")
    assert len(web.asked("GET")) == 1


SHORT = {"Content-Length": str(8 * MIB), "Connection": "close"}


async def test_C04_short_bodies_are_asked_for_again(node, web):
    web.put(MODEL)
    await node.want(version_of(f"{web.url}/{NAME}"))
    seen = []

    def cut_first(asked):
        if asked.method != "GET":
            return None
        seen.append(asked)
        if len(seen) > 1:
            return None
        span = {"Content-Range": f"bytes 0-{8 * MIB - 1}/{len(WEIGHTS)}"}
        return Told(206, WEIGHTS[: 8 * MIB - 3963], {"ETag": '"v1"', **SHORT, **span})

    web.override = cut_first
    async with node.started("--streams=1"):
        assert await node.holds() == {NAME: WEIGHTS}


PAGE = b"<!DOCTYPE html><html>Sign in</html>"
INSTEAD = [
    pytest.param(Told(200, PAGE), "NotAModel", "HTML", id="C20 a page"),
    pytest.param(Told(404), "SourceGone", "no longer has it", id="C21 not found"),
    pytest.param(Told(410), "SourceGone", "no longer has it", id="C21 gone"),
    pytest.param(Told(403), "AuthFailed", "refused", id="forbidden"),
    pytest.param(
        Told(200, b"\x1f\x8b" * 99, {"ETag": '"v1"', "Content-Encoding": "gzip"}),
        "SourceError",
        "compresses it",
        id="compressed on the way",
    ),
    pytest.param(
        Told(
            206,
            b"\x1f\x8b" * 99,
            {"ETag": '"v1"', "Content-Encoding": "gzip", "Content-Range": "bytes 0-197/198"},
        ),
        "SourceError",
        "compresses it",
        id="a range of something compressed",
    ),
]


@pytest.mark.parametrize(("told", "reason", "says"), INSTEAD)
async def test_what_comes_in_place_of_the_file_has_one_reason(node, web, told, reason, says):
    web.put(MODEL)
    await node.want(version_of(f"{web.url}/{NAME}"))
    web.override = lambda asked: told if asked.method == "GET" else None
    async with node.started():
        assert says in await node.fails(reason)


async def test_C22_damage_on_the_way_is_found_by_the_checksum_file(node, web):
    """By the very first node: nobody has proposed anything yet."""
    sha256 = hashlib.sha256(WEIGHTS).hexdigest()
    damaged = bytearray(WEIGHTS)
    damaged[20 * MIB] ^= 0xFF
    web.put({NAME: bytes(damaged), "SHA256SUMS": f"{sha256}  {NAME}\n".encode()})
    await node.want(version_of(f"{web.url}/"))
    async with node.started():
        assert sha256 in await node.fails("DigestMismatch")


async def test_C23_a_pin_that_a_moving_name_has_left_is_tried_once(node, web):
    pinned = make_content_manifest([content_of(NAME, WEIGHTS)]).digest
    web.put({NAME: OTHERS})
    await node.want(version_of(f"{web.url}/{NAME}", digest=pinned))
    async with node.started():
        assert pinned in await node.fails("DigestMismatch")
    assert web.sent_bytes <= len(OTHERS) + 1, "not again and again"
