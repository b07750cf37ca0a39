"""Which files a plain web server's version has, and what tells each from a changed one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

from fakes.source_world import fail_to_resolve as fail
from fakes.source_world import make_version, make_web_sources
from fakes.web_sites import LATER, LONG_AGO, Page, write_checksums, write_files
from modelcache_api.manifest import pack_source, unpack_source
from modelcache_operator.decide.version_status import ResolvedSource
from modelcache_operator.ports.sources import SourceError

DOCS = Path(__file__).parents[2] / "docs" / "sources.md"
MODEL = {
    "config.json": b"{}",
    "1_Pooling/config.json": b"{ }",
    "model.safetensors": b"weights" * 1000,
}
SHA = {path: hashlib.sha256(body).hexdigest() for path, body in MODEL.items()}


def checksums(files):
    lines = (f"{hashlib.sha256(body).hexdigest()}  {path}\n" for path, body in files.items())
    return "".join(lines).encode()


def sizes(manifest):
    return {file.path: file.size_bytes for file in manifest.files}


SIZES = {path: len(body) for path, body in MODEL.items()}


async def test_C02_one_file_has_its_own_name(web_sources, site, tmp_path):
    write_files(tmp_path / "site", {"exp/model/model.gguf": b"GGUF"})
    version = make_version(f"{site.url}/exp/model/model.gguf")
    found = await web_sources.resolve(version)
    assert sizes(found) == {"model.gguf": 4}
    (file,) = found.files
    assert file.etag.startswith('"')
    page = await web_sources.sign(version, found.files)
    assert page.files[0].url == f"{site.url}/exp/model/model.gguf"
    assert site.served("GET", "/exp/model/model.gguf") == [206], "one byte, to try it"


@pytest.mark.parametrize("options", [(), ("--binary",), ("--tag",)], ids=str)
async def test_C02_a_folder_is_what_its_checksums_list(web_sources, site, tmp_path, options):
    """By sha256sum's own words, which are the first node's checksums."""
    folder = tmp_path / "site" / "minilm" / "v1"
    write_files(folder, MODEL)
    write_checksums(folder, *options)
    found = await web_sources.resolve(make_version(f"{site.url}/minilm/v1/"))
    assert sizes(found) == SIZES
    assert {file.path: file.sha256 for file in found.files} == SHA
    page = await web_sources.sign(make_version(f"{site.url}/minilm/v1/"), found.files)
    urls = {file.path: file.url for file in page.files}
    assert urls["1_Pooling/config.json"] == f"{site.url}/minilm/v1/1_Pooling/config.json"


def run_in(folder, command):
    subprocess.run(["/bin/sh", "-c", command], cwd=folder, check=True)


async def test_the_documented_command_makes_a_checksum_file(web_sources, site, tmp_path):
    (command,) = re.findall(r"`(find \..* > SHA256SUMS)`", DOCS.read_text())
    files = {**MODEL, "a b/ü.bin": b"spaces"}
    write_files(tmp_path / "site", files)
    for _ in range(2):  # the second time there is one already
        run_in(tmp_path / "site", command)
    assert set(sizes(await web_sources.resolve(make_version(f"{site.url}/")))) == set(files)


async def test_a_checksum_file_may_have_another_name(web_sources, site, tmp_path):
    write_files(tmp_path / "site", MODEL)
    write_checksums(tmp_path / "site", name="checksums.txt")
    named = make_version(f"{site.url}/", checksum_file="checksums.txt")
    assert sizes(await web_sources.resolve(named)) == SIZES
    found = await fail(web_sources, make_version(f"{site.url}/"))
    assert found.reason == "SourceNotFound"
    assert "'SHA256SUMS'" in found.message
    assert "spec.files" in found.message


async def test_a_listed_set_is_taken_and_an_index_brings_its_shards(web_sources, site, tmp_path):
    shards = {f"unet/model-{n}-of-2.safetensors": b"w" * n for n in (1, 2)}
    weight_map = {f"layer.{n}": f"model-{n % 2 + 1}-of-2.safetensors" for n in range(9)}
    index = json.dumps({"metadata": {"total_size": 3}, "weight_map": weight_map}).encode()
    name = "unet/model.safetensors.index.json"
    write_files(tmp_path / "site", {**MODEL, **shards, name: index, "unlisted.bin": b"x"})
    version = make_version(f"{site.url}/", files=["config.json", name])
    found = await web_sources.resolve(version)
    assert set(sizes(found)) == {"config.json", name, *shards}
    assert all(file.sha256 is None for file in found.files)
    less = make_version(f"{site.url}/", files=["config.json", name], exclude=["*-2-of-2.*"])
    assert "unet/model-2-of-2.safetensors" not in sizes(await web_sources.resolve(less))


async def test_include_and_exclude_come_before_the_server_is_asked(web, web_sources):
    web.put({**MODEL, "SHA256SUMS": checksums({**MODEL, "huge.bin": b""})})
    version = make_version(f"{web.url}/", include=["*.json"], exclude=["1_Pooling/"])
    assert set(sizes(await web_sources.resolve(version))) == {"config.json"}
    assert {one.path for one in web.requests} == {"/SHA256SUMS", "/config.json"}
    nothing = await fail(web_sources, make_version(f"{web.url}/", include=["*.onnx"]))
    assert nothing.reason == "SourceNotFound"
    assert "none of the 4 files" in nothing.message


async def test_names_are_escaped_once_wherever_they_stand(web_sources, site, tmp_path):
    files = {"a b/ü#?.json": b"{}", "a b/[1]+&=,;.bin": b"x"}
    write_files(tmp_path / "site", files)
    write_checksums(tmp_path / "site" / "a b")
    version = make_version(f"{site.url}/a%20b/")
    found = await web_sources.resolve(version)
    assert set(sizes(found)) == {"ü#?.json", "[1]+&=,;.bin"}
    page = await web_sources.sign(version, found.files)
    assert page.files[1].url == f"{site.url}/a%20b/%C3%BC%23%3F.json"
    one = make_version(f"{site.url}/a%20b/%C3%BC.json")
    write_files(tmp_path / "site", {"a b/ü.json": b"{}"})
    assert set(sizes(await web_sources.resolve(one))) == {"ü.json"}


HOSTILE = ["../x", "a/../x", "/etc/passwd", "a//b", "./.", "a\\b", "a\x01b", "%2e%2e/x", "a/" * 600]


@pytest.mark.parametrize("path", HOSTILE)
async def test_hostile_names_make_no_list_and_can_be_left_out(web, web_sources, path):
    line = f"{'0a' * 32}  {path}\n".encode()
    web.put({**MODEL, "SHA256SUMS": checksums(MODEL) + line})
    found = await fail(web_sources, make_version(f"{web.url}/"))
    assert found.reason == "UnsafeKey"
    assert {one.path for one in web.requests} == {"/SHA256SUMS"}
    only = make_version(f"{web.url}/", include=["*.safetensors"])
    assert set(sizes(await web_sources.resolve(only))) == {"model.safetensors"}


async def test_hostile_names_of_an_index_or_the_list_are_refused(web, web_sources):
    index = json.dumps({"weight_map": {"a": "../../secret"}}).encode()
    web.put({"model.safetensors.index.json": index})
    named = make_version(f"{web.url}/m/", files=["../secret"])
    assert (await fail(web_sources, named)).reason == "UnsafeKey"
    version = make_version(f"{web.url}/", files=["model.safetensors.index.json"])
    assert (await fail(web_sources, version)).reason == "UnsafeKey"


async def test_C03_1001_files_are_found_with_a_bounded_number_of_questions_at_once(web, data):
    files = {f"{n:04}.bin": b"x" for n in range(1000)} | {"zz.safetensors": b"w"}
    web.put({**files, "SHA256SUMS": checksums(files)})
    at_once, most, lock = [0], [0], threading.Lock()
    answer = web.answer

    def count(asked):
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        try:
            return answer(asked)
        finally:
            with lock:
                at_once[0] -= 1

    web.answer = count
    sources = make_web_sources(data, at_once=3)
    found = await sources.resolve(make_version(f"{web.url}/"))
    await sources.close()
    assert len(found.files) == 1001
    assert most[0] <= 3
    assert web.connections <= 3, "kept for the next question"


async def test_too_many_files_are_refused_before_the_server_is_asked(web, web_sources):
    lines = b"".join(b"%s  %d.bin\n" % (b"0a" * 32, n) for n in range(10_001))
    web.put({"SHA256SUMS": lines})
    found = await fail(web_sources, make_version(f"{web.url}/"))
    assert found.reason == "TooManyFiles"
    assert len(web.requests) == 1


async def test_C05_an_identity_is_a_strong_etag_or_else_a_date(web, web_sources):
    pages = {
        "strong": Page(b"1", '"v1"', LONG_AGO),
        "dated": Page(b"1", None, LONG_AGO),
        "weak": Page(b"1", 'W/"v1"', LONG_AGO),
        "unquoted": Page(b"1", "v1", LONG_AGO),
    }
    web.pages = dict(pages)
    version = make_version(f"{web.url}/", files=list(pages))
    found = {file.path: file for file in (await web_sources.resolve(version)).files}
    assert (found["strong"].etag, found["strong"].last_modified) == ('"v1"', None)
    for name in ("dated", "weak", "unquoted"):
        assert (found[name].etag, found[name].last_modified) == (None, LONG_AGO)
    before = await web_sources.resolve(version)
    assert unpack_source(pack_source(before)) == before
    assert ResolvedSource.of(before).identity == "Mixed"
    only = await web_sources.resolve(make_version(f"{web.url}/dated"))
    assert ResolvedSource.of(only).identity == "LastModified"
    web.pages["dated"] = Page(b"2", None, LATER)
    after = await web_sources.resolve(version)
    assert after.digest != before.digest


@pytest.mark.parametrize("page", [Page(b"1"), Page(b"1", 'W/"v1"'), Page(b"1", None, "yesterday")])
async def test_a_file_without_identity_takes_a_checksum(web, web_sources, page):
    web.pages = {"m.bin": page}
    found = await fail(web_sources, make_version(f"{web.url}/m.bin"))
    assert (found.reason, found.retry_after_seconds) == ("SourceInvalid", None)
    assert "neither a strong ETag nor a Last-Modified" in found.message
    web.put({"SHA256SUMS": checksums({"m.bin": b"1"})}, etag=None)
    first = await web_sources.resolve(make_version(f"{web.url}/"))
    assert first.files[0].identity == f"version:sha256:{hashlib.sha256(b'1').hexdigest()}"
    web.put({"SHA256SUMS": checksums({"m.bin": b"2"})}, etag=None)
    assert (await web_sources.resolve(make_version(f"{web.url}/"))).digest != first.digest


async def test_C06_a_date_of_this_very_second_is_no_identity_yet(web, data):
    """The next change would have the same date."""
    web.pages = {"m.bin": Page(b"1", None, LONG_AGO)}
    now = [1577836800.5]  # the date's own second
    sources = make_web_sources(data, clock=lambda: now[0])
    found = await fail(sources, make_version(f"{web.url}/m.bin"))
    assert (found.reason, found.retry_after_seconds) == ("SourceChanged", 5.0)
    now[0] += 1
    assert (await sources.resolve(make_version(f"{web.url}/m.bin"))).files
    await sources.close()


async def test_C06_a_file_replaced_in_place_is_another(web_sources, site, tmp_path):
    version = make_version(f"{site.url}/m.bin")
    file = tmp_path / "site" / "m.bin"
    file.write_bytes(b"one")
    first = await web_sources.resolve(version)
    file.write_bytes(b"two")
    os.utime(file, (1, 1))
    assert (await web_sources.resolve(version)).digest != first.digest


@pytest.mark.parametrize("status", [403, 405, 501])
async def test_where_HEAD_is_refused_one_byte_is_asked_for(web, web_sources, status):
    web.put({**MODEL, "empty": b""})
    web.head_status = status
    version = make_version(f"{web.url}/", files=["model.safetensors", "empty"])
    found = await web_sources.resolve(version)
    assert sizes(found) == {"model.safetensors": 7000, "empty": 0}
    asked = web.asked("GET")
    assert {one.headers["range"] for one in asked} == {"bytes=0-0"}
    assert web.sent_bytes <= len(asked)


async def test_without_ranges_hardly_anything_of_a_body_is_read(web, web_sources):
    web.put({"m.bin": b"x" * (64 << 20)})
    web.knows_ranges = False
    web.head_status = 405
    found = await web_sources.resolve(make_version(f"{web.url}/m.bin"))
    assert sizes(found) == {"m.bin": 64 << 20}
    assert web.sent_bytes < 32 << 20


async def test_nothing_but_the_request_is_sent(web, web_sources):
    web.put(MODEL)
    await web_sources.resolve(make_version(f"{web.url}/model.safetensors"))
    for one in web.requests:
        assert set(one.headers) <= {"host", "user-agent", "accept", "accept-encoding", "range"}
        assert one.headers["accept-encoding"] == "identity"
        assert one.headers["host"] == web.url.removeprefix("http://")


async def test_files_are_not_handed_over_by_the_operator(web, web_sources):
    web.put(MODEL)
    version = make_version(f"{web.url}/config.json")
    found = await web_sources.resolve(version)
    with pytest.raises(SourceError, match="its own address"):
        await web_sources.read(version, found.files[0])
