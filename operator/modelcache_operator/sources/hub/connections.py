"""Connections to a hub, its mirror, and where they redirect to: each address judged first.

Every redirect and every page passes here, so what holds for one request holds for all. The name is
resolved once and the judged address is the one connected to. Proxies are not used: behind one, no
address could be judged.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpcore2
import httpx2

from modelcache_api.names import Reason
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.client import Timeouts
from modelcache_operator.sources.egress import RefusedAddressError
from modelcache_operator.sources.leash import Leash

# A page of 1,000 entries has about 300 KB; a small file that is handed over is bounded by itself.
MAX_ANSWER_BYTES: Final = 17 * 1024 * 1024
_CONNECTIONS: Final = 16
_IDLE_SECONDS: Final = 15.0
_RETRY_SECONDS: Final = 30.0

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


class HubConnections:
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

    def send(self, request: httpx2.Request) -> httpx2.Response:
        """One request and its whole answer, both bounded in time and size. Follows nothing.

        Raises:
            SourceError: the answer is too long, or compressed although that was not asked for.
            RefusedAddressError, NO_ANSWER: no complete answer came.
        """
        url = request.url
        # What unpacks to how much is not known beforehand.
        request.headers["Accept-Encoding"] = "identity"
        with self._leash.hold(self._seconds):
            answer = self._pool.handle_request(
                httpcore2.Request(
                    request.method,
                    httpcore2.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
                    headers=request.headers.raw,
                    content=request.read(),
                    extensions={"timeout": self._timeout},
                )
            )
            try:
                body = _read_bounded(answer.iter_stream())
            finally:
                answer.close()
        response = httpx2.Response(
            answer.status, headers=answer.headers, stream=httpx2.ByteStream(body)
        )
        if body and response.headers.get("content-encoding", "identity") != "identity":
            raise _odd("the answer is compressed although that was not asked for")
        return response

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


def _read_bounded(chunks: Iterable[bytes]) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise _odd("the answer is longer than that of any hub")
    return bytes(body)


def _odd(message: str) -> SourceError:
    return SourceError(
        Reason.SOURCE_ERROR,
        f"{message}: check source.endpoint",
        retry_after_seconds=_RETRY_SECONDS,
    )
