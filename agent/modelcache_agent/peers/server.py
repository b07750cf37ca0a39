"""Serves what is verified here to other agents: mutual TLS, a ticket for each version, bounds.

Threads, because a thread that reads, encrypts and sends holds neither the interpreter's lock nor
the event loop; connections and answers in work are bounded.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from modelcache_agent.peers.credentials import PeerCredentials, TicketError
from modelcache_api.limits import MAX_PATH_BYTES
from modelcache_api.names import HEADER_SOURCE, HEADER_TICKET, PATH_PEER_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.fetch.throttle import Throttle
    from modelcache_agent.peers.shelf import Offer, Shelf

_log = logging.getLogger(__name__)
_RANGE: Final = re.compile(r"bytes=(\d{1,19})-(\d{1,19})")
_CHUNK: Final = 256 * 1024
_HANDSHAKE_SECONDS: Final = 5.0
# A reader that takes nothing for so long, or sends nothing between two requests, is left.
_IDLE_SECONDS: Final = 20.0
# A reader that takes less than this is left as well: it would keep a slot from others.
_LEAST_BYTES_PER_SECOND: Final = 64 * 1024
_SLOT_SECONDS: Final = 0.5
_MAX_CONNECTIONS: Final = 256


@dataclass(frozen=True, slots=True)
class PeerDoor:
    """Everything that the serving threads use. `now` is Unix time, `count` counts sent bytes.

    `throttle` None: as fast as it goes.
    """

    credentials: PeerCredentials
    shelf: Shelf
    throttle: Throttle | None
    slots: threading.BoundedSemaphore
    now: Callable[[], float]
    count: Callable[[int], None]


class PeerServer(ThreadingMixIn, TCPServer):
    """Listens from its making on; `serve_forever` in a thread of its own."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], door: PeerDoor) -> None:
        self.door = door
        # By the accepted socket, the one that is talked over: a handshake replaces it.
        self._open: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    @property
    def port(self) -> int:
        """The port that others reach."""
        return int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - inherited
        """No more connections than there is room for, and none before we have a certificate."""
        with self._lock:
            if len(self._open) >= _MAX_CONNECTIONS or not self.door.credentials.is_certified:
                return False
            self._open[request] = request
            return True

    def note_handshake(self, request: socket.socket, tls: socket.socket) -> None:
        """The connection is talked over by this socket from now on."""
        with self._lock:
            if request in self._open:
                self._open[request] = tls

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection and close it."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - inherited
        """A broken connection is the other side's business."""
        _log.debug("a connection of another agent broke", exc_info=True)

    def close(self) -> None:
        """Stop listening and cut what is at work."""
        self.shutdown()
        self.server_close()
        with self._lock:
            for connection in self._open.values():
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PeerServer

    def setup(self) -> None:
        """The handshake happens here, in the connection's own thread."""
        context = self.server.door.credentials.server_context()
        if context is None:
            raise ConnectionAbortedError
        self.request.settimeout(_HANDSHAKE_SECONDS)
        tls: ssl.SSLSocket = context.wrap_socket(self.request, server_side=True)
        self.server.note_handshake(self.request, tls)
        tls.settimeout(_IDLE_SECONDS)
        self._certificate = tls.getpeercert() or {}
        self.request = tls
        super().setup()

    def finish(self) -> None:
        """The plain socket gave its descriptor to the wrapped one."""
        super().finish()
        with contextlib.suppress(OSError):
            self.request.close()

    def log_message(self, *_: object) -> None:
        """Requests hold tickets: nothing of them is logged."""

    def do_GET(self) -> None:
        """A range of a file, or how far this node is with a version."""
        try:
            self._answer()
        except _RefusedError as error:
            self._send(error.status, str(error).encode(), "text/plain")
        except OSError:
            self.close_connection = True

    def _answer(self) -> None:
        uid, path = self._parse_target()
        source = self.headers.get(HEADER_SOURCE, "")
        door = self.server.door
        try:
            door.credentials.check_ticket(
                self.headers.get(HEADER_TICKET, ""), self._certificate, uid, source, door.now()
            )
        except TicketError as error:
            raise _RefusedError(HTTPStatus.FORBIDDEN, str(error)) from error
        if path is None:
            self._tell_progress(uid, source)
            return
        match = _RANGE.fullmatch(self.headers.get("Range", ""))
        if match is None or int(match[1]) > int(match[2]):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "ask for one range of bytes")
        if not door.slots.acquire(timeout=_SLOT_SECONDS):
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "busy")
        try:
            offer = door.shelf.find(uid, source, path, int(match[1]), int(match[2]) + 1)
            if offer is None:
                raise _RefusedError(HTTPStatus.NOT_FOUND, "not here")
            self._send_offer(offer)
        finally:
            door.slots.release()

    def _parse_target(self) -> tuple[str, str | None]:
        rest = self.path.removeprefix(PATH_PEER_ENTRIES)
        if rest == self.path or len(rest) > 3 * MAX_PATH_BYTES + 100:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "no such thing")
        uid, slash, path = rest.partition("/")
        return uid, unquote(path) if slash else None

    def _tell_progress(self, uid: str, source: str) -> None:
        verified = self.server.door.shelf.verified_bytes(uid, source)
        if verified is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "not here")
        body = json.dumps({"verifiedBytes": verified}).encode()
        self._send(HTTPStatus.OK, body, "application/json")

    def _send_offer(self, offer: Offer) -> None:
        try:
            fd = os.open(offer.location, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "not here any more") from None
        try:
            self.send_response_only(HTTPStatus.PARTIAL_CONTENT)
            last = offer.end - 1
            self.send_header("Content-Range", f"bytes {offer.start}-{last}/{offer.size_bytes}")
            self.send_header("Content-Length", str(offer.end - offer.start))
            self.send_header("Content-Type", "application/octet-stream")
            self.end_headers()
            self._send_bytes(fd, offer)
        finally:
            os.close(fd)

    def _send_bytes(self, fd: int, offer: Offer) -> None:
        door, buffer, offset = self.server.door, memoryview(bytearray(_CHUNK)), offer.start
        spent = 0.0
        while offset < offer.end:
            count = os.preadv(fd, [buffer[: min(_CHUNK, offer.end - offset)]], offset)
            if count == 0:
                self.close_connection = True  # cut short: the reader sees that bytes are missing
                return
            if door.throttle is not None:
                door.throttle.take_all(count)
            began = time.monotonic()
            self.wfile.write(buffer[:count])
            spent += time.monotonic() - began
            if spent > _IDLE_SECONDS + (offset - offer.start) / _LEAST_BYTES_PER_SECOND:
                self.close_connection = True
                return
            door.count(count)
            offset += count

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
