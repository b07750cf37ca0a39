"""Connects to a name's addresses, but never to one that a tenant's source may not lead to.

The address that was checked is the address that is connected to: the name is resolved once.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_api.egress import Danger, find_danger
from modelcache_api.names import Reason
from modelcache_api.quoted import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    Resolve = Callable[[str, int], list[str]]

# A name with more addresses than this is tried no further; each try may take a time-out.
_MAX_ADDRESSES: Final = 4


def resolve_name(host: str, port: int) -> list[str]:
    """The numeric addresses of a name, in the system's order. Blocks; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def connect(
    host: str,
    port: int,
    timeout_seconds: float,
    *,
    may_reach_loopback: bool,
    resolve: Resolve = resolve_name,
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
    dangers = {address: find_danger(address) for address in addresses}
    harmless = {None, Danger.LOOPBACK} if may_reach_loopback else {None}
    allowed = [address for address in addresses if dangers[address] in harmless]
    if addresses and not allowed:
        first = addresses[0]
        message = f"{quote(host, 100)} leads to {quote(first, 60)}, which is {dangers[first]}"
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
