"""Connects to a name's addresses, but never to one that serves a machine's own metadata.

The address that was checked is the address that is connected to: the name is resolved once.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError, quote
from modelcache_api.names import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    Resolve = Callable[[str, int], list[str]]
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_FORBIDDEN: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # reaches this machine itself
        "169.254.0.0/16",  # link-local: metadata of most clouds
        "100.100.100.200/32",  # metadata, Alibaba Cloud
        "192.0.0.192/32",  # metadata, Oracle Cloud
        "::/128",
        "fe80::/10",
        "fd00:ec2::/32",  # metadata, AWS over IPv6
        "224.0.0.0/4",
        "ff00::/8",
    )
)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
# A name with more addresses than this is tried no further; each try may take a time-out.
_MAX_ADDRESSES: Final = 4


def resolve_name(host: str, port: int) -> list[str]:
    """The numeric addresses of a name, in the system's order. Blocks; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_forbidden(address: str) -> bool:
    """True for link-local, metadata, unspecified and multicast addresses, however embedded."""
    try:
        parsed: Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    return any(
        inner in network
        for inner in _with_embedded(parsed)
        for network in _FORBIDDEN
        if inner.version == network.version
    )


def _with_embedded(address: Address) -> tuple[Address, ...]:
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    inner: list[Address] = [address]
    if address.ipv4_mapped is not None:
        inner.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        inner.append(address.sixtofour)
    if address in _NAT64 or 1 < int(address) < 1 << 32:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(inner)


def connect(
    host: str, port: int, timeout_seconds: float, resolve: Resolve = resolve_name
) -> socket.socket:
    """A connected TCP socket to one allowed address of the host.

    Raises:
        RefusalError: SourceNotAllowed if every address is forbidden, EndpointUnreachable if no
            address can be found or reached.
    """
    try:
        addresses = resolve(host, port)
    except (OSError, UnicodeError) as error:
        message = f"the name {quote(host, 100)} cannot be resolved: {_plain(error)}"
        raise RefusalError(Refusal(Reason.ENDPOINT_UNREACHABLE, message)) from None
    allowed = [address for address in addresses if not is_forbidden(address)]
    if addresses and not allowed:
        message = f"{quote(host, 100)} leads to the forbidden address {quote(addresses[0], 60)}"
        raise RefusalError(Refusal(Reason.SOURCE_NOT_ALLOWED, message, Cure.NONE))
    last: OSError | None = None
    for address in allowed[:_MAX_ADDRESSES]:
        try:
            sock = socket.create_connection((address, port), timeout_seconds)
        except OSError as error:
            last = error
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    message = f"{quote(host, 100)} port {port} cannot be reached: {_plain(last)}"
    raise RefusalError(Refusal(Reason.ENDPOINT_UNREACHABLE, message))


def _plain(error: Exception | None) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:100]
    return "no address" if error is None else type(error).__name__
