from __future__ import annotations

import socket

import pytest

from modelcache_agent.fetch.address import connect
from modelcache_agent.fetch.refusal import RefusalError
from modelcache_api.names import Reason


def reach(host, port, addresses, *, may_reach_loopback=False):
    return connect(
        host, port, 2, may_reach_loopback=may_reach_loopback, resolve=lambda *_: addresses
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "168.63.129.16"])
def test_a_name_that_leads_to_this_machine_or_its_cloud_is_refused(address):
    with pytest.raises(RefusalError) as caught:
        reach("rebind.example", 80, [address])
    assert caught.value.refusal.reason == Reason.SOURCE_NOT_ALLOWED
    assert address in caught.value.refusal.message


def test_name_that_leads_to_metadata_is_refused_after_resolution():
    with pytest.raises(RefusalError) as caught:
        reach("bucket.example", 80, ["169.254.169.254", "fe80::1"])
    assert caught.value.refusal.reason == Reason.SOURCE_NOT_ALLOWED
    assert "169.254.169.254" in caught.value.refusal.message


def test_the_checked_address_is_the_one_connected_to():
    """A name that answers differently the second time is never asked a second time."""
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with connect(
            "rebind.example", port, 2, may_reach_loopback=True, resolve=lambda *_: next(answers)
        ) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)


def test_forbidden_addresses_are_skipped_beside_allowed_ones():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = ["169.254.169.254", "127.0.0.1"]
        with reach("mixed.example", port, found, may_reach_loopback=True) as sock:
            assert sock.getpeername()[0] == "127.0.0.1"


def test_no_address_at_all_is_unreachable():
    with pytest.raises(RefusalError) as caught:
        reach("empty.example", 80, [])
    assert caught.value.refusal.reason == Reason.ENDPOINT_UNREACHABLE
