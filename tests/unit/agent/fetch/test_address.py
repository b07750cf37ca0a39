from __future__ import annotations

import socket

import pytest

from modelcache_agent.fetch.address import connect, is_forbidden
from modelcache_agent.fetch.refusal import RefusalError
from modelcache_api.names import Reason


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "192.0.0.192",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "not an address",
        "",
    ],
)
def test_metadata_and_link_local_are_forbidden(address):
    assert is_forbidden(address)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1", "fd12::1"]
)
def test_stores_of_private_networks_are_allowed(address):
    assert not is_forbidden(address)


def test_name_that_leads_to_metadata_is_refused_after_resolution():
    with pytest.raises(RefusalError) as caught:
        connect("bucket.example", 80, 1, resolve=lambda *_: ["169.254.169.254", "fe80::1"])
    assert caught.value.refusal.reason == Reason.SOURCE_NOT_ALLOWED
    assert "169.254.169.254" in caught.value.refusal.message


def test_the_checked_address_is_the_one_connected_to():
    """A name that answers differently the second time is never asked a second time."""
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with connect("rebind.example", port, 2, resolve=lambda *_: next(answers)) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)


def test_forbidden_addresses_are_skipped_beside_allowed_ones():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = ["169.254.169.254", "127.0.0.1"]
        with connect("mixed.example", port, 2, resolve=lambda *_: found) as sock:
            assert sock.getpeername()[0] == "127.0.0.1"


def test_no_address_at_all_is_unreachable():
    with pytest.raises(RefusalError) as caught:
        connect("empty.example", 80, 1, resolve=lambda *_: [])
    assert caught.value.refusal.reason == Reason.ENDPOINT_UNREACHABLE
