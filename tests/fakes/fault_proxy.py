"""A loopback HTTP proxy that breaks answers by script, in front of a real store.

The client's Host is passed on unchanged, because signed URLs are signed for it: sign for the
proxy's own address. Faults are scripted per key (a part of the path), by count or by rate. It
counts requests and body bytes per path, and is bounded in requests and in time per request.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import unquote, urlsplit

_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
_BLOCK = 256 * 1024


@dataclass(frozen=True)
class Fault:
    """What to do to one answer. Everything that is not set passes unchanged."""

    status: int | None = None
    """Answer this without asking the store, with `body` and `set_headers`."""
    body: bytes = b""
    close_after: int | None = None
    """Hang up after so many bytes of the body, whatever was announced."""
    framing: str = "length"
    """`length`, `none` (the end of the connection ends the body) or `chunked`."""
    content_length: int | None = None
    """Announce this length instead of the true one."""
    append: bytes = b""
    """More body than was asked for."""
    delay: float = 0.0
    """Seconds before the head."""
    stall_after: int | None = None
    """Send so many bytes of the body, then nothing until the client hangs up."""
    trickle: tuple[int, float] | None = None
    """Send so many bytes, then pause so many seconds, and so on."""
    flip_at: int | None = None
    """Change the byte at this offset of the object."""
    set_headers: dict[str, str] = field(default_factory=dict)
    drop_headers: frozenset[str] = frozenset()
    drop_request_headers: frozenset[str] = frozenset()
    hook: Callable[[], None] | None = None
    """Called before the store is asked."""


@dataclass
class _Rule:
    key: str
    fault: Fault
    times: int | None
    every: int
    seen: int = 0
    used: int = 0


class FaultProxy:
    """`with FaultProxy(("127.0.0.1", 8333)) as proxy: proxy.script("m/model", Fault(...))`."""

    def __init__(
        self, upstream: tuple[str, int], *, max_requests: int = 20_000, max_seconds: float = 30.0
    ) -> None:
        self.upstream = upstream
        self.max_requests = max_requests
        self.max_seconds = max_seconds
        self.gets: Counter[str] = Counter()
        self.heads: Counter[str] = Counter()
        self.body_bytes: Counter[str] = Counter()
        self.answering: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()
        self.served: list[tuple[str, dict[str, str]]] = []
        self.connections = 0
        self.open: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self._rules: list[_Rule] = []

    def __enter__(self) -> Self:
        proxy = self

        class Handler(_Handler):
            world = proxy

        self._http = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    def wrap_tls(self, context: ssl.SSLContext) -> None:
        """Speak TLS to clients from now on; the store is still asked without."""
        self._http.socket = context.wrap_socket(
            self._http.socket, server_side=True, do_handshake_on_connect=False
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, key: str, fault: Fault, *, times: int | None = None, every: int = 1) -> None:
        """Apply the fault to GETs whose path holds `key`: `times` times, to each `every`-th one."""
        with self.lock:
            self._rules.append(_Rule(key, fault, times, every))

    def heal(self) -> None:
        """Drop all faults."""
        with self.lock:
            self._rules.clear()

    def drop_connections(self) -> None:
        """Close all connections, as a restarted server does."""
        with self.lock:
            for sock in self.open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def reset_counts(self) -> None:
        with self.lock:
            self.gets.clear()
            self.heads.clear()
            self.body_bytes.clear()
            self.served.clear()

    @property
    def total_bytes(self) -> int:
        return sum(self.body_bytes.values())

    @contextlib.contextmanager
    def counting(self, path: str) -> Iterator[None]:
        """One answer is on its way; how many were at most at the same time is kept."""
        with self.lock:
            self.answering[path] += 1
            self.most_at_once[path] = max(self.most_at_once[path], self.answering[path])
        try:
            yield
        finally:
            with self.lock:
                self.answering[path] -= 1

    def edit(self, target: str, body: bytes) -> bytes:
        """For stand-ins: the document that takes the place of the store's. Not of objects."""
        return body

    def choose(self, path: str) -> Fault | None:
        with self.lock:
            self.gets[path] += 1
            if sum(self.gets.values()) > self.max_requests:
                return Fault(status=508)
            for rule in self._rules:
                if rule.key not in path:
                    continue
                rule.seen += 1
                if rule.seen % rule.every or (rule.times is not None and rule.used >= rule.times):
                    continue
                rule.used += 1
                return rule.fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """Hanging up is what this server is for."""


class _Handler(BaseHTTPRequestHandler):
    world: FaultProxy
    protocol_version = "HTTP/1.1"

    def setup(self):
        self.timeout = self.world.max_seconds
        super().setup()
        with self.world.lock:
            self.world.connections += 1
            self.world.open.add(self.connection)

    def finish(self):
        with self.world.lock:
            self.world.open.discard(self.connection)
        super().finish()

    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        path = unquote(urlsplit(self.path).path.lstrip("/"))
        self.world.served.append((path, {k.lower(): v for k, v in self.headers.items()}))
        fault = self.world.choose(path) or Fault()
        if fault.hook is not None:
            fault.hook()
        if fault.delay:
            self.world.closing.wait(fault.delay)
        if fault.status is not None:
            self._answer(path, fault)
            return
        with self.world.counting(path):
            self._forward(path, fault)

    def do_HEAD(self):
        path = unquote(urlsplit(self.path).path.lstrip("/"))
        with self.world.lock:
            self.world.heads[path] += 1
        self._forward(path, Fault())

    def _answer(self, path, fault):
        self.send_response_only(fault.status)
        for name, value in fault.set_headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(fault.body)))
        self.end_headers()
        self._write(path, fault.body)

    def _forward(self, path, fault):
        connection = http.client.HTTPConnection(*self.world.upstream, timeout=30)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in _HOP_HEADERS | fault.drop_request_headers:
                    connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            kind = answer.getheader("Content-Type")
            if (answer.status, kind) == (HTTPStatus.OK, "application/xml"):
                self._send_document(answer)
                return
            self._send_head(answer, fault)
            self._send_body(path, answer, fault)
        finally:
            connection.close()

    def _send_document(self, answer):
        body = self.world.edit(self.path, answer.read())
        self._send_head(answer, Fault(content_length=len(body)))
        self.wfile.write(body)

    def _send_head(self, answer, fault):
        self.send_response_only(answer.status)
        dropped = _HOP_HEADERS | fault.drop_headers | {name.lower() for name in fault.set_headers}
        for name, value in answer.getheaders():
            if name.lower() not in dropped | {"content-length"}:
                self.send_header(name, value)
        for name, value in fault.set_headers.items():
            self.send_header(name, value)
        if fault.framing == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        elif fault.framing == "length":
            length = fault.content_length
            if length is None:
                length = int(answer.getheader("Content-Length", "0")) + len(fault.append)
            self.send_header("Content-Length", str(length))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()

    def _send_body(self, path, answer, fault):
        sent = 0
        start = _range_start(answer)
        step = fault.trickle[0] if fault.trickle else _BLOCK
        while block := answer.read(step):
            block = _flip(block, start + sent, fault.flip_at)
            for limit in (fault.close_after, fault.stall_after):
                if limit is not None:
                    block = block[: max(0, limit - sent)]
            self._write_block(path, block, fault)
            sent += len(block)
            if sent == fault.close_after:
                self.close_connection = True
                return
            if sent == fault.stall_after:
                self._stall()
                return
            if fault.trickle:
                self.world.closing.wait(fault.trickle[1])
        if fault.append:
            self._write_block(path, fault.append, fault)
        if fault.framing == "chunked":
            self.wfile.write(b"0\r\n\r\n")

    def _write_block(self, path, block, fault):
        if fault.framing == "chunked" and block:
            self.wfile.write(b"%x\r\n" % len(block))
            self._write(path, block)
            self.wfile.write(b"\r\n")
        else:
            self._write(path, block)

    def _write(self, path, data):
        self.wfile.write(data)
        with self.world.lock:
            self.world.body_bytes[path] += len(data)

    def _stall(self):
        """Say nothing more until the client hangs up or the proxy is closed."""
        self.close_connection = True
        self.connection.settimeout(0.05)
        while not self.world.closing.is_set():
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return


def _range_start(answer):
    header = answer.getheader("Content-Range", "")
    return int(header.removeprefix("bytes ").partition("-")[0]) if header else 0


def _flip(block, offset, flip_at):
    if flip_at is None or not offset <= flip_at < offset + len(block):
        return block
    changed = bytearray(block)
    changed[flip_at - offset] ^= 0xFF
    return bytes(changed)
