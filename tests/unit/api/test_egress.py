from __future__ import annotations

import pytest

from modelcache_api.egress import Danger, find_danger, is_loopback_host


@pytest.mark.parametrize(
    ("danger", "addresses"),
    [
        (
            Danger.METADATA,
            (
                "169.254.169.254 169.254.0.1 ::ffff:169.254.169.254 ::169.254.169.254 "
                "64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe 2002:a9fe:a9fe::1 fe80::1 fe80::1%eth0 "
                "fd00:ec2::254 fd20:ce::254 100.100.100.200 168.63.129.16 192.0.0.192"
            ),
        ),
        (Danger.NO_HOST, "0.0.0.0 0.1.2.3 :: 224.0.0.1 255.255.255.255 ff02::1"),
        (
            Danger.LOOPBACK,
            "127.0.0.1 127.8.8.8 ::1 ::ffff:127.0.0.1 ::127.0.0.1 2002:7f00:1:: 64:ff9b::7f00:1",
        ),
        (Danger.NOT_AN_ADDRESS, "name 2130706433 127.1 0x7f.0.0.1"),
        (None, "10.0.0.1 192.168.1.1 172.17.0.1 8.8.8.8 fd12::1 2600::1 fd20:ce::253"),
    ],
)
def test_addresses(danger, addresses):
    for address in addresses.split():
        assert find_danger(address) is danger, address
    assert find_danger("") is Danger.NOT_AN_ADDRESS


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LocalHost.", True),
        ("bucket.localhost", True),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("127.1", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_only_the_spelling_makes_a_host_loopback(host, expected):
    assert is_loopback_host(host) is expected
