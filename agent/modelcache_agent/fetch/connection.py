"""HTTP/1.1 over checked addresses: keep-alive connections of one stream, and redirects.

One `ConnectionCache` belongs to one stream thread; only `Reply.abort` may be called from others.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.fetch.address import connect
from modelcache_agent.fetch.origin import (
    DEFAULT_PORTS,
    Origin,
    following_origin,
    granted_origin,
    next_url,
    split_url,
)
from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_agent.fetch.reply import Reply
from modelcache_agent.fetch.routes import PEER_CONNECT_SECONDS, PEER_STALL
from modelcache_api.names import Reason
from modelcache_api.quoted import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from urllib.parse import SplitResult

    from modelcache_agent.fetch.config import FetchConfig
    from modelcache_agent.fetch.routes import PeerRoute

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_IDLE: Final = 4
# A redirect's body is read to its end if it is this short, so that the connection can be kept.
_DRAIN_BYTES: Final = 16 * 1024
# What may go to another origin after a redirect; a grant's headers may hold credentials.
_SAFE_HEADERS: Final = frozenset({"range", "if-match", "if-unmodified-since", "user-agent"})


class ConnectionCache:
    """Connections of one stream thread, the idle ones kept for the next request."""

    def __init__(
        self,
        config: FetchConfig,
        on_socket: Callable[[socket.socket | None], None],
        on_open: Callable[[], None],
    ) -> None:
        self._config = config
        self._on_socket = on_socket
        self._on_open = on_open
        self._idle: OrderedDict[Origin, http.client.HTTPConnection] = OrderedDict()
        self._contexts: dict[str | None, ssl.SSLContext] = {}
        self._peer_context: ssl.SSLContext | None = None

    def get_from_peer(self, route: PeerRoute) -> Exchange:
        """The same of another node, which is known by its certificate and sends nobody elsewhere.

        Raises: as `get`.
        """
        origin = replace(granted_origin(route.url, None), server_name=route.server_name)
        self._peer_context = route.context
        reply, connection = self._request(origin, split_url(route.url), route.headers)
        return Exchange(self, origin, connection, reply)

    def get(self, url: str, headers: Mapping[str, str], ca_bundle: str | None) -> Exchange:
        """Send GET, follow redirects, and return the exchange with its first final response.

        Raises:
            RefusalError: unreachable, TLS, forbidden address or redirect.
            OSError, HTTPException: the connection broke before a response.
        """
        sent = dict(headers)
        origin = granted = granted_origin(url, ca_bundle)
        for _ in range(self._config.max_redirects + 1):
            reply, connection = self._request(origin, split_url(url), sent)
            if reply.status not in _REDIRECTS:
                return Exchange(self, origin, connection, reply)
            location = reply.header("Location")
            reply.read_beginning(_DRAIN_BYTES)
            Exchange(self, origin, connection, reply).close()
            url = next_url(url, location)
            before, origin = origin, following_origin(granted, split_url(url))
            if origin != before:
                sent = {k: v for k, v in sent.items() if k.lower() in _SAFE_HEADERS}
        message = f"more than {self._config.max_redirects} redirects"
        raise RefusalError(Refusal(Reason.SOURCE_ERROR, message, Cure.NONE))

    def put_back(self, origin: Origin, connection: http.client.HTTPConnection) -> None:
        """Keep an idle connection; the least recently used one goes when there are too many."""
        self._on_socket(None)
        previous = self._idle.pop(origin, None)
        if previous is not None:
            previous.close()
        self._idle[origin] = connection
        while len(self._idle) > _MAX_IDLE:
            self._idle.popitem(last=False)[1].close()

    def discard(self, connection: http.client.HTTPConnection) -> None:
        """Close a connection that is in an unknown state."""
        self._on_socket(None)
        connection.close()

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.popitem()[1].close()

    def _request(
        self, origin: Origin, parts: SplitResult, headers: Mapping[str, str]
    ) -> tuple[Reply, http.client.HTTPConnection]:
        target = parts.path or "/"
        if parts.query:
            target = f"{target}?{parts.query}"
        connection = self._take_idle(origin)
        if connection is not None:
            try:
                return _exchange(connection, target, headers), connection
            except (OSError, http.client.HTTPException):
                # The server may close an idle connection at any moment: one fresh try is free.
                self.discard(connection)
            except BaseException:
                self.discard(connection)
                raise
        connection = self._open(origin)
        try:
            return _exchange(connection, target, headers), connection
        except BaseException:
            self.discard(connection)
            raise

    def _take_idle(self, origin: Origin) -> http.client.HTTPConnection | None:
        connection = self._idle.pop(origin, None)
        if connection is None or connection.sock is None:
            return None
        readable, _, _ = select.select([connection.sock], [], [], 0)
        if readable:  # closed by the server, or it talks out of turn
            connection.close()
            return None
        self._on_socket(connection.sock)
        return connection

    def _open(self, origin: Origin) -> http.client.HTTPConnection:
        config = self._config
        sock = connect(
            origin.host,
            origin.port,
            PEER_CONNECT_SECONDS if origin.server_name else config.connect_timeout_seconds,
            may_reach_loopback=origin.may_reach_loopback,
        )
        self._on_socket(sock)
        if origin.scheme == "https":
            sock = self._wrap(sock, origin)
        sock.settimeout(
            PEER_STALL.window_seconds if origin.server_name else config.response_timeout_seconds
        )
        connection = http.client.HTTPConnection(origin.host, origin.port)
        connection.default_port = DEFAULT_PORTS[origin.scheme]
        connection.auto_open = 0  # a reconnect would skip the check of the address
        connection.sock = sock
        self._on_open()
        return connection

    def _wrap(self, sock: socket.socket, origin: Origin) -> ssl.SSLSocket:
        if origin.server_name is not None and self._peer_context is not None:
            name, context = origin.server_name, self._peer_context
        else:
            name, context = origin.host, self._context(origin.ca_bundle)
        wrapped = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
        self._on_socket(wrapped)
        try:
            wrapped.do_handshake()
        except ssl.SSLError as error:
            wrapped.close()
            is_untrusted = isinstance(error, ssl.SSLCertVerificationError)
            message = f"TLS with {quote(origin.host, 100)} failed: {_tls_cause(error)}"
            # The authority may have been replaced since the grant named it.
            cure = Cure.REFRESH if is_untrusted else Cure.RETRY
            raise RefusalError(Refusal(Reason.TLS_FAILED, message, cure)) from None
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def _context(self, ca_bundle: str | None) -> ssl.SSLContext:
        context = self._contexts.get(ca_bundle)
        if context is None:
            try:
                context = ssl.create_default_context(cadata=ca_bundle)
            except (ssl.SSLError, ValueError):
                message = "the CA bundle holds no usable certificate"
                raise RefusalError(Refusal(Reason.TLS_FAILED, message, Cure.REFRESH)) from None
            if len(self._contexts) >= _MAX_IDLE:
                self._contexts.clear()
            self._contexts[ca_bundle] = context
        return context


class Exchange:
    """A response together with the connection it must be given back to."""

    def __init__(
        self,
        cache: ConnectionCache,
        origin: Origin,
        connection: http.client.HTTPConnection,
        reply: Reply,
    ) -> None:
        self._cache = cache
        self._origin = origin
        self._connection = connection
        self.reply = reply

    def close(self) -> None:
        """Keep the connection if it is at a message boundary, else close it."""
        reusable = self.reply.may_be_reused
        self.reply.close()
        if reusable:
            self._cache.put_back(self._origin, self._connection)
        else:
            self._cache.discard(self._connection)


def _exchange(
    connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
) -> Reply:
    connection.request("GET", target, headers=dict(headers))
    return Reply(connection, connection.getresponse())


def _tls_cause(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message[:120]}"
    return (error.reason or "handshake failed").replace("_", " ").lower()[:120]
