"""Which addresses no tenant's source may lead to: one list for operator and agents. Pure.

Names prove nothing: judge the address that is connected to, after DNS and after each redirect.
"""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Final

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Danger(StrEnum):
    """Why an address must not be connected to. Only LOOPBACK can be granted."""

    NOT_AN_ADDRESS = "not an address"
    METADATA = "a link-local or metadata address"
    NO_HOST = "not the address of a host"
    LOOPBACK = "a loopback address"


# Embedded addresses are judged by all of these; the first danger found is the answer.
_NETWORKS: Final = tuple(
    (ipaddress.ip_network(network), danger)
    for network, danger in (
        ("169.254.0.0/16", Danger.METADATA),  # link-local: most clouds
        ("fe80::/10", Danger.METADATA),
        ("fd00:ec2::/32", Danger.METADATA),  # AWS
        ("fd20:ce::254/128", Danger.METADATA),  # Google Cloud
        ("100.100.100.200/32", Danger.METADATA),  # Alibaba Cloud
        ("168.63.129.16/32", Danger.METADATA),  # Azure
        ("192.0.0.192/32", Danger.METADATA),  # Oracle Cloud
        ("0.0.0.0/8", Danger.NO_HOST),  # reaches this machine itself
        ("::/128", Danger.NO_HOST),
        ("224.0.0.0/4", Danger.NO_HOST),
        ("255.255.255.255/32", Danger.NO_HOST),
        ("ff00::/8", Danger.NO_HOST),
        ("127.0.0.0/8", Danger.LOOPBACK),
        ("::1/128", Danger.LOOPBACK),
    )
)
# Their last 32 bits are an IPv4 address that a gateway connects to.
_TRANSLATED: Final = (
    ipaddress.IPv6Network("64:ff9b::/96"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
)
_FIRST_COMPATIBLE: Final = 2
_END_OF_COMPATIBLE: Final = 1 << 32


def find_danger(address: str) -> Danger | None:
    """Why no connection may lead to this numeric address, however it is embedded; or None."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return Danger.NOT_AN_ADDRESS
    forms = _with_embedded(parsed)
    found = (danger for network, danger in _NETWORKS if any(form in network for form in forms))
    return next(found, None)


def is_loopback_host(host: str) -> bool:
    """True if the host of a URL is this machine by its very spelling, whatever DNS says."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    return find_danger(name.removeprefix("[").removesuffix("]")) is Danger.LOOPBACK


def _with_embedded(address: _Address) -> tuple[_Address, ...]:
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    found: list[_Address] = [address]
    if address.ipv4_mapped is not None:
        found.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    is_compatible = _FIRST_COMPATIBLE <= int(address) < _END_OF_COMPATIBLE
    if is_compatible or any(address in network for network in _TRANSLATED):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(found)
