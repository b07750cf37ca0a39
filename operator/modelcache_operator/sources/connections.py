"""Connections to a web server and where it redirects to: each address judged first.

Every redirect and every page passes here, so what holds for one request holds for all. The name is
resolved once and the judged address is the one connected to. Proxies are not used: behind one, no
address could be judged.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpcore2

from modelcache_operator.sources.client import Timeouts
from modelcache_operator.sources.egress import RefusedAddressError
from modelcache_operator.sources.leash import Leash

_CONNECTIONS: Final = 16
_IDLE_SECONDS: Final = 15.0

# What is raised where no complete answer came.
NO_ANSWER: Final = (
    OSError,
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
)
Judge = Callable[[str, int, str], str | None]
"""Why no connection for (host, port) may lead to an address, or None."""


class ElsewhereError(Exception):
    """No answer came from a server that the source's own leads to; the cause says why."""

    def __init__(self, authority: str) -> None:
        super().__init__(authority)
        self.authority = authority


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `raw_headers` are as they came; `is_whole` False: the body would go on."""

    status: int
    raw_headers: list[tuple[bytes, bytes]]
    body: bytes
    is_whole: bool

    @property
    def headers(self) -> Mapping[str, str]:
        """By name in lower case; of a header that is repeated, the last one."""
        return {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in self.raw_headers
        }


class JudgedConnections:
    """Kept connections under one judge and one CA bundle; without a bundle, the system's CAs."""

    def __init__(self, judge: Judge, ca_bundle: str | None, timeouts: Timeouts) -> None:
        self._leash = Leash()
        self._seconds = timeouts.request
        self._timeout = {
            "connect": timeouts.connect,
            "read": timeouts.read,
            "write": timeouts.read,
            "pool": timeouts.request,
        }
        self._pool = httpcore2.ConnectionPool(
            ssl_context=ssl.create_default_context(cadata=ca_bundle),
            max_connections=_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=_JudgedBackend(judge, self._leash),
        )

    def exchange(self, request: httpcore2.Request, max_bytes: int) -> Answer:
        """One request and its answer up to so many bytes, bounded in time. Follows nothing.

        Raises:
            RefusedAddressError, NO_ANSWER: no complete answer came.
        """
        request.extensions["timeout"] = self._timeout
        with self._leash.hold(self._seconds):
            answer = self._pool.handle_request(request)
            try:
                body, is_whole = _read_bounded(answer.iter_stream(), max_bytes)
            finally:
                answer.close()
        return Answer(answer.status, answer.headers, body, is_whole)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()


class _JudgedBackend(httpcore2.NetworkBackend):
    def __init__(self, judge: Judge, leash: Leash) -> None:
        self._judge = judge
        self._leash = leash
        self._backend = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        addresses = _resolve(host, port)
        for address in addresses:
            why = self._judge(host, port, address)
            if why is not None:
                raise RefusedAddressError(f"{host[:200]}: {why}")
        stream = self._backend.connect_tcp(
            addresses[0], port, timeout, local_address, socket_options
        )
        self._leash.take(stream.get_extra_info("socket"))
        return _LeashedStream(stream, self._leash)


class _LeashedStream(httpcore2.NetworkStream):
    """Whoever writes uses the connection from then on: kept ones pass from thread to thread."""

    def __init__(self, stream: httpcore2.NetworkStream, leash: Leash) -> None:
        self._stream = stream
        self._leash = leash

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._leash.take(self._stream.get_extra_info("socket"))
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _LeashedStream(stream, self._leash)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _resolve(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # idna refuses odd names
        raise socket.gaierror(socket.EAI_NONAME, "no such name") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _read_bounded(chunks: Iterable[bytes], max_bytes: int) -> tuple[bytes, bool]:
    """The beginning of a body, and whether that is all of it."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]), False
    return bytes(body), True
