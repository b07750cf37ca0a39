"""Connections that lead only where a source may: names are checked after DNS, at each connection.

Checking a name first and connecting later would leave the store's owner time to change the name,
so the address is judged on the connected socket, before a byte is sent on it.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session, create_urllib3_context
from urllib3.exceptions import HTTPError

from modelcache_api.names import Reason
from modelcache_operator.decide.allowed_sources import Reach, describe_refused_address
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.addressing import Address
from modelcache_operator.sources.leash import Leash

RESOLVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 30.0

# A page of 1,000 keys of 1,024 bytes, each percent-encoded, with its XML.
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_CHUNK: Final = 64 * 1024

Judge = Callable[[str], str | None]


class RefusedAddressError(Exception):
    """A connection led to an address that the source may not reach."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


async def check_names(address: Address, reach: Reach) -> None:
    """Resolve the host of the source's requests and judge all its addresses.

    Raises:
        SourceError: SourceNotAllowed, WrongAddressing or EndpointUnreachable.
    """
    found = await _resolve(address.request_host, address.port)
    if found is None:
        raise await _explain_unknown_name(address)
    for candidate in found:
        why = describe_refused_address(candidate, reach)
        if why is not None:
            raise SourceError(Reason.SOURCE_NOT_ALLOWED, f"{address.request_host}: {why}")


async def _explain_unknown_name(address: Address) -> SourceError:
    is_virtual = address.style == "virtual"
    if is_virtual and await _resolve(address.host, address.port) is not None:
        return SourceError(
            Reason.WRONG_ADDRESSING,
            f"{address.host} resolves, {address.request_host} does not: the store does not "
            "take the bucket in the host name; set source.addressing to Path",
        )
    return SourceError(
        Reason.ENDPOINT_UNREACHABLE,
        f"the name {address.request_host} does not resolve: correct source.endpoint",
        retry_after_seconds=_RETRY_SECONDS,
    )


async def _resolve(host: str, port: int) -> list[str] | None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # TimeoutError is an OSError; idna refuses odd names
        return None
    return [str(item[4][0]) for item in found]


class GuardedSession(URLLib3Session):
    """botocore's HTTP session with a judge for each connection, and trust in one CA bundle only.

    Redirects are never followed. Proxies are not used: behind one, no address could be judged.
    """

    _pool_classes_by_scheme: dict[str, Any]

    def __init__(
        self,
        reach: Reach,
        ca_bundle: str | None,
        *,
        timeout: tuple[float, float],
        request_seconds: float,
    ) -> None:
        self._ca_bundle = ca_bundle
        self._request_seconds = request_seconds
        self._leash = Leash()
        super().__init__(timeout=timeout, proxies={})  # type: ignore[arg-type] # the stubs say int
        judge = partial(describe_refused_address, reach=reach)
        http, https = _guarded_pools(judge, self._leash)
        self._pool_classes_by_scheme.update(http=http, https=https)

    def send(self, request: Any) -> Any:
        """One request and its whole answer, both bounded in time and size.

        Raises:
            SourceError: the answer is too long.
            botocore.exceptions.HTTPClientError: no complete answer came.
        """
        request.stream_output = True  # the answer is read below, by our own bounds
        with self._leash.hold(self._request_seconds):
            response: Any = super().send(request)
            body = _read_bounded(response.raw, request.url)
            response._content = body  # noqa: SLF001 - else it would read again
            response.raw = io.BytesIO(body)  # for calls whose answer is a stream
        return response

    def _get_ssl_context(self) -> ssl.SSLContext:
        context: ssl.SSLContext = create_urllib3_context()
        if self._ca_bundle is not None:
            context.load_verify_locations(cadata=self._ca_bundle)
        return context

    def _setup_ssl_cert(self, conn: Any, url: str, verify: Any) -> None:
        super()._setup_ssl_cert(conn, url, verify)  # type: ignore[misc] # not in the stubs
        if self._ca_bundle is not None:
            conn.ca_certs = None  # the context has the bundle; public CAs are not added to it


def _guarded_pools(
    judge: Judge, leash: Leash
) -> tuple[type[AWSHTTPConnectionPool], type[AWSHTTPSConnectionPool]]:
    class GuardedConnection(AWSHTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _judged(super()._new_conn(), judge, leash)

    class GuardedTlsConnection(AWSHTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _judged(super()._new_conn(), judge, leash)

    class GuardedPool(AWSHTTPConnectionPool):
        ConnectionCls = GuardedConnection

        def _make_request(self, conn: Any, *args: Any, **options: Any) -> Any:
            _take_reused(conn, leash)
            return super()._make_request(conn, *args, **options)

    class GuardedTlsPool(AWSHTTPSConnectionPool):
        ConnectionCls = GuardedTlsConnection

        def _make_request(self, conn: Any, *args: Any, **options: Any) -> Any:
            _take_reused(conn, leash)
            return super()._make_request(conn, *args, **options)

    return GuardedPool, GuardedTlsPool


def _take_reused(connection: Any, leash: Leash) -> None:
    if connection.sock is not None:
        leash.take(connection.sock)


def _judged(connection: socket.socket, judge: Judge, leash: Leash) -> socket.socket:
    why = judge(str(connection.getpeername()[0]))
    if why is not None:
        connection.close()
        raise RefusedAddressError(why)
    leash.take(connection)
    return connection


def _read_bounded(raw: Any, url: str) -> bytes:
    body = bytearray()
    try:
        for chunk in raw.stream(_CHUNK):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raw.close()
                raise SourceError(
                    Reason.SOURCE_ERROR,
                    "the answer is longer than that of any S3 store: check source.endpoint",
                    retry_after_seconds=_RETRY_SECONDS,
                )
    except HTTPError as error:
        raise ReadTimeoutError(endpoint_url=url, error=error) from error
    return bytes(body)
