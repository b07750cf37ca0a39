"""What a source must show of files that are here: by the rules of all other requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from fakes.fault_proxy import Fault
from fakes.fetch_world import (
    Grants,
    LeapingClock,
    make_job,
    plain_url,
    quick,
    random_body,
    until,
)
from fakes.range_server import Served
from modelcache_agent.decide.possession import SPAN_BYTES, SPANS
from modelcache_agent.fetch import FetchCancelledError, FetchEngine, FetchFile, SourceGate
from modelcache_agent.fetch.egress import name_source
from modelcache_api.manifest import SourceFile

SIZE = 9 << 20
PATHS = ("a.safetensors", "b.safetensors")
BODIES = {path: random_body(SIZE, seed) for seed, path in enumerate(PATHS)}
SOURCES = {path: SourceFile(path, SIZE, '"v1"') for path in PATHS}


@pytest.fixture
def blobs(tmp_path):
    found = {path: tmp_path / f"blob-{number}" for number, path in enumerate(PATHS)}
    for path, blob in found.items():
        blob.write_bytes(BODIES[path])
    return found


@pytest.fixture
def job(tmp_path):
    return make_job(SOURCES, tmp_path / "partial", namespace="models")


@pytest.fixture(autouse=True)
def served(server):
    server.objects.update({path: Served.of(body) for path, body in BODIES.items()})


@asynccontextmanager
async def engine_for(endpoint, gate=None, sources=SOURCES):
    grants = Grants(sources, plain_url(endpoint))
    async with FetchEngine(grants, quick(), LeapingClock(), gate=gate) as engine:
        engine.grants = grants
        yield engine


async def test_a_source_that_has_the_bytes_shows_them_and_nothing_is_written(
    server, job, blobs, tmp_path
):
    async with engine_for(server.url("")[:-1]) as engine:
        assert await engine.challenge(job, blobs) == frozenset(PATHS)
        counters = engine.counters()
    assert not (tmp_path / "partial").exists()
    assert 0 < counters.network_bytes <= len(PATHS) * SPANS * SPAN_BYTES
    assert counters.egress == {("models", name_source(server.url(""))): counters.network_bytes}
    assert counters.requests == len(server.requests)
    assert counters.connections == 1, "one connection does"
    assert {headers["if-match"] for _path, headers in server.requests} == {'"v1"'}


async def test_the_date_guards_what_has_no_etag(server, job, blobs):
    date = "Mon, 02 Nov 2026 10:00:00 GMT"
    path = PATHS[0]
    dated = replace(SOURCES[path], etag=None, last_modified=date)
    async with engine_for(server.url("")[:-1], sources={path: dated}) as engine:
        await engine.challenge(replace(job, files=(FetchFile(dated),)), blobs)
    assert {headers["if-unmodified-since"] for _path, headers in server.requests} == {date}


async def test_each_time_other_bytes_are_asked_for(server, job, blobs):
    async with engine_for(server.url("")[:-1]) as engine:
        await engine.challenge(job, blobs)
        first = {headers["range"] for _path, headers in server.requests}
        server.requests.clear()
        await engine.challenge(job, blobs)
    second = {headers["range"] for _path, headers in server.requests}
    assert len(first | second) > len(first)


async def test_after_the_first_file_that_is_not_shown_no_more_is_asked(server, job, blobs):
    server.objects[PATHS[0]] = Served.of(random_body(SIZE, 9))
    async with engine_for(server.url("")[:-1]) as engine:
        assert await engine.challenge(job, blobs) == frozenset()
    assert [path for path, _headers in server.requests] == [PATHS[0]]


PASSING = [
    pytest.param(Fault(status=503), id="a busy store"),
    pytest.param(Fault(close_after=100), id="a connection that breaks"),
    pytest.param(Fault(status=403), id="a signature that ran out"),
]


@pytest.mark.parametrize("fault", PASSING)
async def test_a_fault_that_passes_does_not_cost_a_download(proxy, job, blobs, fault):
    proxy.script(PATHS[0], fault, times=1)
    async with engine_for(proxy.endpoint) as engine:
        assert await engine.challenge(job, blobs) == frozenset(PATHS)
        assert engine.grants.refreshed[PATHS[0]] == (1 if fault.status == 403 else 0)


LASTING = [
    pytest.param(Fault(status=503), id="a busy store"),
    pytest.param(Fault(status=403), id="no leave to read"),
    pytest.param(Fault(status=404), id="no such object"),
    pytest.param(Fault(stall_after=100), id="a server that falls silent"),
    pytest.param(Fault(drop_request_headers=frozenset({"range"})), id="whole files only"),
    pytest.param(Fault(set_headers={"ETag": '"v2"'}), id="another object"),
    pytest.param(Fault(status=302, set_headers={"Location": "http://169.254.169.254/"}), id="away"),
]


@pytest.mark.parametrize("fault", LASTING)
async def test_who_shows_nothing_has_shown_nothing(proxy, job, blobs, fault):
    proxy.script(PATHS[0], fault)
    async with engine_for(proxy.endpoint) as engine:
        assert await engine.challenge(job, blobs) == frozenset()


@pytest.mark.parametrize("change", [lambda b: b.write_bytes(b""), lambda b: b.unlink()])
async def test_what_is_not_here_any_more_cannot_be_shown(server, job, blobs, change):
    change(blobs[PATHS[0]])
    async with engine_for(server.url("")[:-1]) as engine:
        assert await engine.challenge(job, blobs) == frozenset()
    assert not server.requests


async def test_without_a_lease_nothing_is_asked_and_a_lost_one_ends_it(server, job, blobs):
    clock = LeapingClock()
    gate = SourceGate(clock, clock.monotonic)
    gate.close(job.uid)
    async with engine_for(server.url("")[:-1], gate) as engine:
        asked = asyncio.create_task(engine.challenge(job, blobs))
        await until(lambda: gate.is_wanted(job.uid))
        await engine.cancel(job.uid)
        with pytest.raises(FetchCancelledError):
            await asked
        assert not server.requests
        gate.forget(job.uid)
        assert await engine.challenge(job, blobs) == frozenset(PATHS)


@pytest.mark.parametrize("stop", ["cancel", "the caller", "close"])
async def test_a_silent_server_holds_nobody_who_wants_to_stop(proxy, job, blobs, stop):
    proxy.script(PATHS[0], Fault(delay=60))
    async with engine_for(proxy.endpoint) as engine:
        asked = asyncio.create_task(engine.challenge(job, blobs))
        await until(lambda: engine.counters().connections == 1)
        if stop == "cancel":
            await engine.cancel(job.uid)
        elif stop == "the caller":
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
    if stop != "the caller":
        with pytest.raises(FetchCancelledError):
            await asked
