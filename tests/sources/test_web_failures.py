"""What a plain web server can refuse or do wrong, and the one reason that it gets."""

from __future__ import annotations

import hashlib
import json

import pytest

from fakes.hub_http import Told
from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_version
from fakes.web_sites import LATER, LONG_AGO

MODEL = {"config.json": b"{}", "model.safetensors": b"weights"}
SUMS = "".join(f"{hashlib.sha256(b).hexdigest()}  {p}\n" for p, b in MODEL.items()).encode()
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(web):
    web.put({**MODEL, "SHA256SUMS": SUMS})
    return web, make_version(f"{web.url}/")


def for_path(part, told, method=""):
    return lambda asked: told if part in asked.path and method in asked.method else None


HTML = {"Content-Type": "text/html; charset=utf-8"}
REFUSALS = [
    pytest.param(Told(401), "AuthFailed", None, "without credentials", id="401"),
    pytest.param(Told(403), "AuthFailed", None, "s3://", id="403"),
    pytest.param(Told(404), "SourceNotFound", None, "correct source.uri", id="404"),
    pytest.param(Told(410), "SourceNotFound", None, "410", id="C21 410"),
    pytest.param(Told(429, headers={"Retry-After": "77"}), "Throttled", 77.0, "429", id="429"),
    pytest.param(Told(503, headers={"Retry-After": "9"}), "Throttled", 9.0, "503", id="503"),
    pytest.param(Told(503), "Throttled", 15.0, "fewer requests", id="503 without a time"),
    pytest.param(Told(500), "SourceError", 15.0, "tried again", id="500"),
    pytest.param(Told(408), "SourceError", 15.0, "tried again", id="408"),
    pytest.param(Told(400), "SourceError", 60.0, "check source.uri", id="400"),
    pytest.param(Told(204), "SourceError", 60.0, "204", id="204"),
    pytest.param(Told(cut=True), "EndpointUnreachable", 15.0, "breaks", id="a broken connection"),
    pytest.param(
        Told(200, b"<html>sign in", HTML), "NotAModel", None, "web page (text/html)", id="C20 login"
    ),
    pytest.param(
        Told(200, b"\x1f\x8b", {"Content-Encoding": "gzip"}),
        "SourceInvalid",
        None,
        "compresses",
        id="compressed",
    ),
    pytest.param(
        Told(302, headers={"Location": "ftp://x/"}), "SourceNotAllowed", None, "no http", id="ftp"
    ),
    pytest.param(Told(302), "SourceNotAllowed", None, "no http", id="a redirect nowhere"),
    pytest.param(
        Told(307, headers={"Location": "?again"}), "SourceError", 60.0, "5 times", id="a loop"
    ),
]


@pytest.mark.parametrize(("told", "reason", "pause", "says"), REFUSALS)
@pytest.mark.parametrize("part", ["/SHA256SUMS", "/model.safetensors"])
async def test_a_refusal_has_one_reason_at_every_step(
    web_sources, folder, told, reason, pause, says, part
):
    web, version = folder
    web.override = for_path(part, told)
    found = await fail(web_sources, version)
    assert (found.reason, found.retry_after_seconds) == (reason, pause)
    assert says in found.message
    asked = [one for one in web.requests if part in one.path]
    assert len(asked) <= (6 if "Location" in told.headers else 2), "our queue tries again"


@pytest.mark.parametrize(
    "told",
    [Told(403), Told(200, b"weights", {"ETag": '"v2"'}), Told(206, b"w", {"ETag": '"v1"'})],
    ids=["GET is refused", "another ETag", "no size"],
)
async def test_what_nodes_could_not_read_is_found_when_it_is_resolved(web_sources, folder, told):
    web, version = folder
    web.override = for_path("/model.safetensors", told, "GET")
    found = await fail(web_sources, version)
    assert found.reason in ("AuthFailed", "SourceInvalid")
    assert "'model.safetensors'" in found.message


async def test_servers_behind_one_name_that_differ_are_told(web, web_sources):
    web.put(MODEL, etag=None, date=LONG_AGO)
    other = Told(206, b"w", {"Last-Modified": LATER, "Content-Range": "bytes 0-0/7"})
    web.override = for_path("/model.safetensors", other, "GET")
    found = await fail(web_sources, make_version(f"{web.url}/model.safetensors"))
    assert (found.reason, found.retry_after_seconds) == ("SourceInvalid", 60.0)
    assert "servers that differ" in found.message


LINES = [
    pytest.param(b"", "it lists no file", id="nothing"),
    pytest.param(b"\n \n", "it lists no file", id="empty lines"),
    pytest.param(b"d41d8cd98f00b204e9800998ecf8427e  a\n", "line 1 is not", id="md5"),
    pytest.param(SUMS + b"a line\n", "line 3 is not", id="a line of words"),
    pytest.param(b"-----BEGIN PGP SIGNED MESSAGE-----\n" + SUMS, "line 1 is not", id="signed"),
    pytest.param(SUMS + b"0a" * 32 + b"  config.json\n", "a second sha256", id="twice"),
    pytest.param(b"\x00\xff" * 1000, "line 1 is not", id="no text"),
    pytest.param(b"a" * (25 << 20), "longer than", id="too long"),
]


@pytest.mark.parametrize(("body", "says"), LINES)
async def test_a_checksum_file_that_is_none_says_which_line(web_sources, folder, body, says):
    web, version = folder
    web.put({"SHA256SUMS": body})
    found = await fail(web_sources, version)
    assert (found.reason, found.retry_after_seconds) == ("SourceInvalid", None)
    assert "'SHA256SUMS'" in found.message
    assert says in found.message


INDEXES = [
    b"",
    b"not JSON",
    b"[]",
    b"{}",
    b'{"weight_map": {}}',
    b'{"weight_map": {"a": 7}}',
    b'{"weight_map": ["a"]}',
    b"[" * 100_000,
    b'{"weight_map": {"a": "b"}, "x": [' + b"[]," * 600_000 + b"[]]}",
    json.dumps({"weight_map": {"a": ["b"]}}).encode(),
]


@pytest.mark.parametrize("body", INDEXES, ids=range(len(INDEXES)))
async def test_an_index_that_is_none_makes_no_list(web, web_sources, body):
    web.put({INDEX: body})
    found = await fail(web_sources, make_version(f"{web.url}/", files=[INDEX]))
    assert (found.reason, found.retry_after_seconds) == ("SourceInvalid", None)
    assert "weight_map" in found.message


async def test_C21_one_missing_file_of_the_list_is_named(web_sources, folder):
    web, version = folder
    del web.pages["config.json"]
    found = await fail(web_sources, version)
    assert found.reason == "SourceNotFound"
    assert "'config.json'" in found.message


async def test_words_of_the_server_enter_no_message(web_sources, folder):
    web, version = folder
    evil = {"Content-Type": "text/html evil", "Location": "http://evil words/", "ETag": "evil"}
    for status in (200, 302, 418, 429):
        web.override = lambda _, status=status: Told(status, b"evil", evil)
        assert "evil" not in (await fail(web_sources, version)).message
