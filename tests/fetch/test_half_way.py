"""What goes wrong while a file is read: one reason, few requests, and what was read is kept."""

from __future__ import annotations

import hashlib
import time

import pytest

from fakes.fault_proxy import Fault
from fakes.fetch_world import Grants, LeapingClock, make_job, plain_url, quick, random_body
from fakes.range_server import Served
from fakes.safetensors_kit import PAGE
from modelcache_agent.decide.transfer_plan import StallPolicy
from modelcache_agent.fetch import FetchEngine
from modelcache_api.manifest import PIECE_BYTES, SourceFile
from modelcache_api.names import Reason

TAIL = 5000
BODY = random_body(PIECE_BYTES + TAIL)
SHA = hashlib.sha256(BODY).hexdigest()
# The largest file is read first.
FIRST = random_body(2 * PIECE_BYTES, 1)
# One request for each piece, so that the second one is in the middle of the file.
CONFIG = quick(streams=1, part_pieces=1, file_attempts=2, stall=StallPolicy(1.0, 64 * 1024))


class World:
    """Two files behind the proxy, with an identity as S3 or the hub has it."""

    def __init__(self, server, proxy, directory, source):
        etag = '"v1"' if source == "s3" else None
        bodies = {"a.bin": FIRST, "m.bin": BODY}
        for path, body in bodies.items():
            server.objects[path] = Served.of(body)
        self.sources = {path: SourceFile(path, len(body), etag) for path, body in bodies.items()}
        self.grants = Grants(self.sources, plain_url(proxy.endpoint))
        self.proxy = proxy
        self.directory = directory

    async def fetch(self):
        async with FetchEngine(self.grants, CONFIG) as engine:
            return await engine.fetch(make_job(self.sources, self.directory))

    async def resume(self):
        """Heal the source and fetch again; how many bytes of bodies that took."""
        self.proxy.heal()
        self.proxy.reset_counts()
        outcome = await self.fetch()
        assert outcome.failure is None
        assert outcome.files[1].sha256 == SHA
        assert "a.bin" not in self.proxy.gets, "what is finished is not asked for again"
        return self.proxy.total_bytes


@pytest.fixture(params=["s3", "hub"])
def world(server, proxy, tmp_path, request):
    return World(server, proxy, tmp_path / "p", request.param)


REASONS = [
    pytest.param(Fault(status=401), Reason.AUTH_FAILED, 2, id="401"),
    pytest.param(Fault(status=403), Reason.AUTH_FAILED, 2, id="403"),
    pytest.param(
        Fault(status=400, body=b"<Error><Code>ExpiredToken</Code></Error>"),
        Reason.CREDENTIALS_EXPIRED,
        2,
        id="C09 expired",
    ),
    pytest.param(
        Fault(status=403, body=b"<Error><Code>RequestTimeTooSkewed</Code></Error>"),
        Reason.CLOCK_SKEW,
        3,
        id="C10 skew",
    ),
    pytest.param(Fault(status=404), Reason.SOURCE_GONE, 1, id="C21 404"),
    pytest.param(Fault(status=410), Reason.SOURCE_GONE, 1, id="C21 410"),
    pytest.param(Fault(status=412), Reason.SOURCE_CHANGED, 1, id="C12 412"),
    pytest.param(Fault(status=416), Reason.SOURCE_CHANGED, 1, id="C12 416"),
    pytest.param(Fault(status=200, body=PAGE), Reason.NOT_A_MODEL, 1, id="C20 a page"),
    pytest.param(
        Fault(status=302, set_headers={"Location": "?"}), Reason.SOURCE_ERROR, 6, id="a loop"
    ),
    pytest.param(
        Fault(status=302, set_headers={"Location": "http://169.254.169.254/"}),
        Reason.SOURCE_NOT_ALLOWED,
        1,
        id="sent to a metadata address",
    ),
    pytest.param(Fault(status=429), Reason.THROTTLED, 2, id="429"),
    pytest.param(Fault(status=503), Reason.THROTTLED, 2, id="503"),
    pytest.param(Fault(status=500), Reason.SOURCE_ERROR, 2, id="500"),
    pytest.param(Fault(close_after=1000), Reason.TRANSFER_FAILED, 2, id="C04 cut"),
    pytest.param(Fault(append=b"x"), Reason.TRANSFER_FAILED, 2, id="C04 too long"),
    pytest.param(Fault(stall_after=1000), Reason.TRANSFER_STALLED, 2, id="stalled"),
]


@pytest.mark.parametrize(("fault", "reason", "requests"), REASONS)
async def test_what_fails_half_way_has_one_reason_and_costs_nothing_that_was_read(
    world, proxy, fault, reason, requests
):
    proxy.script("m.bin", Fault(), times=1)
    proxy.script("m.bin", fault)
    outcome = await world.fetch()
    assert (outcome.failure.reason, outcome.failure.path) == (reason, "m.bin")
    assert [file.path for file in outcome.files] == ["a.bin"]
    assert proxy.gets["m.bin"] == 1 + requests
    assert await world.resume() == TAIL


PASSING = [row for row in REASONS if row.values[2] > 1 and row.id != "a loop"]


@pytest.mark.parametrize(("fault", "_reason", "_requests"), PASSING)
async def test_what_passes_half_way_is_made_up_for(world, proxy, fault, _reason, _requests):
    proxy.script("m.bin", Fault(), times=1)
    proxy.script("m.bin", fault, times=1)
    outcome = await world.fetch()
    assert outcome.failure is None
    assert outcome.files[1].sha256 == SHA
    assert proxy.gets["m.bin"] == 3


async def test_C21_an_object_that_is_deleted_while_it_is_read_is_gone(s3, s3_proxy, tmp_path):
    sources = {"m.bin": s3.put("m.bin", BODY)}
    deleted = []

    def delete():
        if not deleted:
            deleted.append(s3.bucket.delete(f"{s3.prefix}/m.bin"))

    s3_proxy.script("m.bin", Fault(), times=1)
    s3_proxy.script("m.bin", Fault(hook=delete))
    async with FetchEngine(s3.grants(sources), CONFIG) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
        assert outcome.failure.reason == Reason.SOURCE_GONE
        assert "NoSuchKey" in outcome.failure.message
        assert sum(s3_proxy.gets.values()) == 2
        sources["m.bin"] = s3.put("m.bin", BODY)
        s3_proxy.heal()
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
    assert outcome.files[0].sha256 == SHA
    assert s3_proxy.total_bytes < len(BODY) + PIECE_BYTES, "the same bytes are the same object"


@pytest.mark.parametrize("hours", [-2, 2])
async def test_C10_a_node_with_a_wrong_clock_asks_for_grants_as_often_as_it_reads(world, hours):
    """Signed addresses live for an hour; to a fast clock each one has run out when it comes."""
    clock = LeapingClock()
    clock.now = lambda: time.time() + hours * 3600
    async with FetchEngine(world.grants, CONFIG, clock) as engine:
        outcome = await engine.fetch(make_job(world.sources, world.directory))
    assert outcome.failure is None
    assert world.grants.refreshed["m.bin"] <= 2
