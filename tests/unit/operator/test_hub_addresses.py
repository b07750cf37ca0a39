from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from modelcache_api.manifest import SourceFile
from modelcache_operator.decide.allowed_sources import Reach
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.hub.addresses import (
    FileAddress,
    RecentAddresses,
    check_target,
    expiry_of,
)
from modelcache_operator.sources.hub.endpoint import parse_endpoint
from modelcache_operator.sources.hub.small_files import RecentBodies, check_body

STAMP = datetime(2026, 1, 31, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("query", "expires_at"),
    [
        pytest.param("Expires=1800000000&Policy=x&Signature=y", 1.8e9, id="a moment"),
        pytest.param(
            "X-Amz-Date=20260131T120000Z&X-Amz-Expires=3600", STAMP + 3600, id="a span of AWS"
        ),
        pytest.param(
            "X-Goog-Date=20260131T120000Z&X-Goog-Expires=60", STAMP + 60, id="a span of Google"
        ),
        pytest.param("X-Amz-Date=yesterday&X-Amz-Expires=3600", 5.0, id="no date"),
        pytest.param("Expires=soon", 5.0, id="no number"),
        pytest.param("", 5.0, id="nothing"),
    ],
)
def test_an_address_says_itself_when_it_ends(query, expires_at):
    assert expiry_of(f"https://cdn.example/x?{query}", 5.0) == expires_at


def check(url, endpoint="https://hub.example", may_reach_loopback=False):
    check_target(parse_endpoint(endpoint), url, lambda _: Reach(may_reach_loopback))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://cdn.example/x", "SourceNotAllowed"),
        ("https://127.0.0.1/x", "SourceNotAllowed"),
        ("https://localhost/x", "SourceNotAllowed"),
        ("https://[::1]/x", "SourceNotAllowed"),
        ("file:///etc/passwd", "SourceError"),
        ("https://", "SourceError"),
    ],
)
def test_agents_are_not_sent_there(url, reason):
    with pytest.raises(SourceError) as caught:
        check(url)
    assert caught.value.reason == reason


def test_agents_are_sent_to_the_cdn_and_to_loopback_where_that_is_allowed():
    check("https://cdn.example/x?Signature=y")
    check("http://127.0.0.1/x", endpoint="http://mirror", may_reach_loopback=True)


def test_recent_addresses_are_given_out_for_half_of_their_life_at_most():
    now = [1000.0]
    recent = RecentAddresses(2, 300.0, lambda: now[0], lambda: now[0])
    recent.put("short", FileAddress("https://a", 1020.0))
    recent.put("long", FileAddress("https://b", 9000.0))
    now[0] = 1009.0
    assert recent.get("short").url == "https://a"
    now[0] = 1011.0
    assert recent.get("short") is None
    now[0] = 1299.0
    assert recent.get("long").url == "https://b"
    now[0] = 1301.0
    assert recent.get("long") is None


def test_the_oldest_addresses_and_bodies_go_first():
    addresses = RecentAddresses(2, 300.0, lambda: 0.0, lambda: 0.0)
    for name in "abc":
        addresses.put(name, FileAddress(name, 1e9))
    assert [addresses.get(name) is not None for name in "abc"] == [False, True, True]
    bodies = RecentBodies(10, 300.0, lambda: 0.0)
    for name in "abc":
        bodies.put(name, name.encode() * 4)
    bodies.put("b", b"bbbbb")
    assert [bodies.get(name) for name in "abc"] == [None, b"bbbbb", b"cccc"]
    bodies.put("huge", b"x" * 11)
    assert bodies.get("huge") is None


def test_a_body_must_be_the_one_that_git_or_the_checksum_names():
    git = hashlib.sha1(b"blob 5\0hello").hexdigest()
    check_body(SourceFile("a", 5, version_id=git), b"hello")
    large = SourceFile("a", 5, version_id=git, sha256=hashlib.sha256(b"hello").hexdigest())
    check_body(large, b"hello")
    for file, body in ((SourceFile("a", 5, version_id=git), b"jello"), (large, b"hell")):
        with pytest.raises(SourceError, match="SourceChanged"):
            check_body(file, body)
