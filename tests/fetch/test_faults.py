"""What the source can do wrong, and the one reason each fault ends in."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import time
from email.utils import formatdate

import pytest

from fakes.fault_proxy import Fault
from fakes.fetch_world import (
    Grants,
    LeapingClock,
    content_of,
    make_job,
    plain_url,
    quick,
    random_body,
)
from fakes.range_server import Served
from modelcache_agent.decide.transfer_plan import BackoffPolicy, StallPolicy
from modelcache_agent.fetch import FetchEngine, GrantUnavailableError
from modelcache_api.manifest import PIECE_BYTES, SourceFile
from modelcache_api.names import Reason

MIB = 1 << 20
BODY = random_body(20 * MIB)
SHA = hashlib.sha256(BODY).hexdigest()


def s3_error(code: str, extra: str = "") -> bytes:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message>{extra}</Error>"
    return text.encode()


class World:
    """One file behind the proxy."""

    def __init__(self, server, proxy, directory):
        server.objects["m.bin"] = Served.of(BODY)
        self.sources = {"m.bin": SourceFile("m.bin", len(BODY), '"v1"')}
        self.grants = Grants(self.sources, plain_url(proxy.endpoint))
        self.directory = directory
        self.counters = None

    async def fetch(self, config=None, clock=None, **changes):
        job = make_job(self.sources, self.directory, **changes)
        async with FetchEngine(self.grants, config or quick(), clock) as engine:
            outcome = await engine.fetch(job)
            self.counters = engine.counters()
        return outcome

    async def fail(self, config=None, **changes):
        outcome = await self.fetch(config, **changes)
        assert outcome.failure is not None
        assert "Signature" not in outcome.failure.message
        assert "://" not in outcome.failure.message
        return outcome.failure

    async def succeed(self, config=None, clock=None, **changes):
        outcome = await self.fetch(config, clock, **changes)
        assert outcome.failure is None
        assert outcome.files[0].sha256 == SHA
        assert outcome.files[0].partial_path.read_bytes() == BODY
        return outcome


@pytest.fixture
def world(server, proxy, tmp_path):
    return World(server, proxy, tmp_path / "p")


SHORT = [
    pytest.param(Fault(close_after=len(BODY) - 3963), id="hangs up before the announced length"),
    pytest.param(Fault(close_after=len(BODY) - 3963, framing="chunked"), id="chunked, cut"),
    pytest.param(Fault(close_after=len(BODY) - 3963, framing="none"), id="no length, cut"),
    pytest.param(
        Fault(close_after=len(BODY) - 3963, content_length=len(BODY) - 3963),
        id="announces the short length",
    ),
]


@pytest.mark.parametrize("fault", SHORT)
async def test_C04_short_body_fails_with_file_expected_and_received(world, proxy, fault):
    tail = len(BODY) - 2 * PIECE_BYTES
    proxy.script("m.bin", fault, times=1)
    proxy.script("m.bin", dataclasses.replace(fault, **_rest(fault, tail)))
    failure = await world.fail()
    assert failure.reason == Reason.TRANSFER_FAILED
    assert "m.bin" in failure.message
    assert f"expected {tail} bytes" in failure.message
    assert f"received {tail - 3963}" in failure.message
    assert failure.retry_after_seconds is not None
    assert proxy.gets["m.bin"] == 1 + quick().file_attempts - 1


def _rest(fault, tail):
    changes = {"close_after": tail - 3963}
    if fault.content_length is not None:
        changes["content_length"] = tail - 3963
    return changes


@pytest.mark.parametrize("fault", SHORT)
async def test_C04_short_body_once_is_repaired(world, proxy, fault):
    proxy.script("m.bin", fault, times=1)
    await world.succeed()
    assert world.counters.network_bytes < len(BODY) + PIECE_BYTES


@pytest.mark.parametrize("framing", ["chunked", "none"])
async def test_C04_unannounced_length_is_fine_if_complete(world, proxy, framing):
    proxy.script("m.bin", Fault(framing=framing, drop_headers=frozenset({"content-length"})))
    await world.succeed()


async def test_long_chunked_body_is_never_taken(world, proxy):
    proxy.script("m.bin", Fault(framing="chunked", append=b"more"))
    failure = await world.fail()
    assert failure.reason == Reason.TRANSFER_FAILED
    assert "received more" in failure.message


async def test_long_announced_body_is_never_taken(world, proxy):
    proxy.script("m.bin", Fault(append=b"more"))
    failure = await world.fail()
    assert failure.reason == Reason.TRANSFER_FAILED
    assert str(len(BODY) + 4) in failure.message


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(Fault(status=404), Reason.SOURCE_GONE, id="404"),
        pytest.param(Fault(status=410), Reason.SOURCE_GONE, id="410"),
        pytest.param(
            Fault(status=400, body=s3_error("NoSuchVersion")), Reason.SOURCE_GONE, id="version"
        ),
        pytest.param(Fault(status=412), Reason.SOURCE_CHANGED, id="412"),
        pytest.param(Fault(status=416), Reason.SOURCE_CHANGED, id="416"),
        pytest.param(
            Fault(set_headers={"Content-Range": f"bytes 0-{len(BODY) - 1}/{len(BODY) + 1}"}),
            Reason.SOURCE_CHANGED,
            id="another total",
        ),
        pytest.param(
            Fault(set_headers={"Content-Range": f"bytes 8-{len(BODY) - 1}/{len(BODY)}"}),
            Reason.SOURCE_CHANGED,
            id="another range",
        ),
        pytest.param(
            Fault(drop_headers=frozenset({"content-range"})), Reason.SOURCE_CHANGED, id="no range"
        ),
        pytest.param(
            Fault(set_headers={"ETag": '"other"'}), Reason.SOURCE_CHANGED, id="another ETag"
        ),
        pytest.param(Fault(status=400), Reason.SOURCE_ERROR, id="400"),
        pytest.param(Fault(status=204), Reason.SOURCE_ERROR, id="204"),
    ],
)
async def test_final_answers_are_asked_for_once(world, proxy, fault, reason):
    proxy.script("m.bin", fault)
    failure = await world.fail()
    assert failure.reason == reason
    assert failure.path == "m.bin"
    assert proxy.gets["m.bin"] == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(Fault(status=500), Reason.SOURCE_ERROR, id="500"),
        pytest.param(Fault(status=502), Reason.SOURCE_ERROR, id="502"),
        pytest.param(Fault(status=503, body=s3_error("SlowDown")), Reason.THROTTLED, id="503"),
        pytest.param(Fault(status=429), Reason.THROTTLED, id="429"),
        pytest.param(Fault(close_after=0), Reason.TRANSFER_FAILED, id="hangs up"),
        pytest.param(
            Fault(status=400, body=s3_error("RequestTimeout")), Reason.SOURCE_ERROR, id="timeout"
        ),
    ],
)
async def test_passing_faults_are_tried_again_within_the_budget(
    world, server, proxy, fault, reason
):
    proxy.script("m.bin", fault, times=2)
    await world.succeed()
    assert world.counters.retries == {reason: 2}
    server.objects["n.bin"] = server.objects["m.bin"]
    proxy.script("n.bin", fault)
    world.sources = {"n.bin": SourceFile("n.bin", len(BODY), '"v1"')}
    world.grants.sources = world.sources
    proxy.reset_counts()
    failure = await world.fail()
    assert failure.reason == reason
    assert failure.retry_after_seconds >= 30
    assert proxy.gets["n.bin"] == quick().file_attempts


@pytest.mark.parametrize(
    ("value", "least"),
    [
        pytest.param("100", 100, id="seconds"),
        pytest.param(formatdate(time.time() + 900, usegmt=True), 300, id="date, capped"),
        pytest.param("86400", 300, id="a day, capped"),
    ],
)
async def test_retry_after_is_honoured(world, proxy, value, least):
    proxy.script("m.bin", Fault(status=503, set_headers={"Retry-After": value}), times=1)
    clock = LeapingClock()
    await world.succeed(quick(streams=1, stall=StallPolicy(window_seconds=10_000)), clock)
    assert least <= clock.leapt < least + 5
    assert world.counters.retries == {Reason.THROTTLED: 1}


async def test_backoff_doubles_with_jitter_up_to_its_cap(world, proxy):
    """Ceilings 1, 2, 4, 8, 8 with a jitter of one half."""
    proxy.script("m.bin", Fault(status=500))
    clock = LeapingClock()
    config = quick(
        streams=1,
        file_attempts=6,
        backoff=BackoffPolicy(base_seconds=1, cap_seconds=8),
        stall=StallPolicy(window_seconds=10_000),
    )
    outcome = await world.fetch(config, clock)
    assert outcome.failure.reason == Reason.SOURCE_ERROR
    assert "6 attempts" in outcome.failure.message
    assert clock.leapt == pytest.approx((1 + 2 + 4 + 8 + 8) / 2, abs=0.5)


async def test_C09_expired_credentials_are_renewed_once_then_reported(world, proxy):
    proxy.script("m.bin", Fault(status=400, body=s3_error("ExpiredToken")), times=1)
    await world.succeed()
    assert world.grants.refreshed["m.bin"] == 1

    world.directory = world.directory.with_name("q")
    proxy.script("m.bin", Fault(status=400, body=s3_error("ExpiredToken")))
    proxy.reset_counts()
    failure = await world.fail()
    assert failure.reason == Reason.CREDENTIALS_EXPIRED
    assert "ExpiredToken" in failure.message
    assert failure.retry_after_seconds is not None
    assert proxy.gets["m.bin"] == 2


async def test_C09_a_url_that_expires_under_two_streams_costs_one_renewal(world, proxy):
    """Both streams are answered only when both have asked, so both used the same URL."""
    both = threading.Barrier(2, timeout=10)
    fault = Fault(status=400, body=s3_error("ExpiredToken"), hook=both.wait)
    proxy.script("m.bin", fault, times=2)
    await world.succeed(quick(streams=2, part_pieces=1))
    assert world.grants.refreshed["m.bin"] == 1


async def test_C09_expired_presigned_url_as_aws_says_it(world, proxy):
    body = s3_error("AccessDenied").replace(b">m<", b">Request has expired<")
    proxy.script("m.bin", Fault(status=403, body=body))
    failure = await world.fail()
    assert failure.reason == Reason.CREDENTIALS_EXPIRED


@pytest.mark.parametrize("status", [401, 403])
async def test_denied_access_is_tried_with_one_new_grant(world, proxy, status):
    proxy.script("m.bin", Fault(status=status, body=s3_error("AccessDenied")))
    failure = await world.fail()
    assert failure.reason == Reason.AUTH_FAILED
    assert proxy.gets["m.bin"] == 2
    assert world.grants.refreshed["m.bin"] == 1


async def test_C10_clock_skew_gives_both_times_and_no_hot_retry(world, proxy):
    extra = "<ServerTime>2031-02-03T04:05:06Z</ServerTime>"
    proxy.script("m.bin", Fault(status=403, body=s3_error("RequestTimeTooSkewed", extra)))
    failure = await world.fail()
    assert failure.reason == Reason.CLOCK_SKEW
    assert "2031-02-03T04:05:06Z" in failure.message
    assert time.strftime("%Y-%m-%dT%H:", time.gmtime()) in failure.message
    assert failure.retry_after_seconds >= 60
    assert proxy.gets["m.bin"] == 3


async def test_C10_occasional_skew_recovers_by_itself(world, proxy):
    proxy.script("m.bin", Fault(status=403, body=s3_error("RequestTimeTooSkewed")), times=1)
    await world.succeed()
    assert world.counters.retries == {Reason.CLOCK_SKEW: 1}


async def test_silent_server_is_a_stall(world, proxy):
    proxy.script("m.bin", Fault(stall_after=MIB))
    failure = await world.fail(quick(file_attempts=2))
    assert failure.reason == Reason.TRANSFER_STALLED
    assert "m.bin" in failure.message


async def test_trickle_is_a_stall_although_every_read_gets_a_byte(world, proxy):
    proxy.script("m.bin", Fault(trickle=(1, 0.02)), times=1)
    await world.succeed()
    assert world.counters.retries == {Reason.TRANSFER_STALLED: 1}


async def test_slow_but_steady_is_not_a_stall(world, proxy):
    proxy.script("m.bin", Fault(trickle=(MIB, 0.05)))
    stall = StallPolicy(window_seconds=0.2, min_bytes_per_second=MIB)
    await world.succeed(quick(stall=stall))
    assert world.counters.retries == {}


async def test_server_without_ranges_is_read_once_without_corruption(world, server):
    server.ignores_ranges = True
    world.grants.url_of = server.url
    await world.succeed(quick(part_pieces=1))
    assert world.counters.network_bytes < 2 * len(BODY)


async def test_flipped_byte_is_found_and_fetched_again(world, proxy):
    expected = {"m.bin": content_of("m.bin", BODY)}
    proxy.script("m.bin", Fault(flip_at=9 * MIB), times=1)
    await world.succeed(expected=expected)
    assert world.counters.retries == {Reason.DIGEST_MISMATCH: 1}
    assert world.counters.network_bytes <= len(BODY) + 2 * PIECE_BYTES


async def test_C23_wrong_content_gives_both_hashes_after_one_more_try(world, proxy):
    other = bytearray(BODY)
    other[9 * MIB] ^= 1
    expected = {"m.bin": content_of("m.bin", bytes(other))}
    failure = await world.fail(expected=expected)
    assert failure.reason == Reason.DIGEST_MISMATCH
    assert expected["m.bin"].pieces[1] in failure.message
    assert content_of("m.bin", BODY).pieces[1] in failure.message
    assert proxy.total_bytes <= 2 * len(BODY) + PIECE_BYTES


@pytest.mark.parametrize("knows_pieces", [False, True])
async def test_C23_wrong_file_digest_gives_both_hashes_after_one_more_try(
    world, proxy, knows_pieces
):
    """Pieces are another node's word: that they are right does not stand in for the sha256."""
    content = content_of("m.bin", BODY)
    pieces = content.pieces if knows_pieces else ()
    wrong = dataclasses.replace(content, sha256="0" * 64, pieces=pieces)
    failure = await world.fail(expected={"m.bin": wrong})
    assert failure.reason == Reason.DIGEST_MISMATCH
    assert "0" * 64 in failure.message
    assert SHA in failure.message
    assert proxy.total_bytes == 2 * len(BODY)


async def test_refused_connection_is_endpoint_unreachable(world):
    world.grants.url_of = lambda _: "http://127.0.0.1:9/m.bin"
    failure = await world.fail()
    assert failure.reason == Reason.ENDPOINT_UNREACHABLE
    assert "port 9" in failure.message


async def test_unknown_name_is_endpoint_unreachable(world):
    world.grants.url_of = lambda _: "http://no-such-host.invalid/m.bin"
    failure = await world.fail()
    assert failure.reason == Reason.ENDPOINT_UNREACHABLE
    assert "no-such-host.invalid" in failure.message


async def test_plain_server_behind_https_is_tls_failed(world, proxy):
    world.grants.url_of = lambda _: proxy.endpoint.replace("http:", "https:") + "/m.bin"
    failure = await world.fail()
    assert failure.reason == Reason.TLS_FAILED


@pytest.mark.parametrize(
    ("reason", "pause"), [(Reason.GRANT_REFUSED, 77), (Reason.NOT_KNOWN_YET, 1)]
)
async def test_no_grant_is_the_providers_reason_and_pause(world, reason, pause):
    async def refuse(uid, path):
        raise GrantUnavailableError(reason, "not for this node", pause)

    world.grants.current = refuse
    failure = await world.fail()
    assert (failure.reason, failure.message, failure.retry_after_seconds) == (
        reason,
        "not for this node",
        pause,
    )


async def test_C06_grant_for_another_object_than_the_manifests_is_source_changed(world):
    world.grants.sources = {"m.bin": SourceFile("m.bin", len(BODY), '"v2"')}
    failure = await world.fail()
    assert failure.reason == Reason.SOURCE_CHANGED


async def test_urls_are_renewed_before_they_expire(world):
    world.grants.lifetime = 30.0
    await world.succeed(quick(streams=1, part_pieces=1))
    assert world.grants.asked["m.bin"] == 1
    assert world.grants.refreshed["m.bin"] >= 3


async def test_every_range_carries_the_identity(world, proxy):
    await world.succeed(quick(part_pieces=1))
    assert [headers["if-match"] for _, headers in proxy.served] == ['"v1"'] * 3
    assert all("range" in headers for _, headers in proxy.served)


async def test_C06_store_that_ignores_if_match_is_still_found_out(world, server, proxy):
    server.objects["m.bin"] = Served.of(BODY[::-1], "v2")
    proxy.script("m.bin", Fault(drop_request_headers=frozenset({"if-match"})))
    failure = await world.fail()
    assert failure.reason == Reason.SOURCE_CHANGED
    assert "v2" in failure.message
