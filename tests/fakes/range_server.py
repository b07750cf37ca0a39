"""A small web server with ranges, ETags and If-Match, for objects that no store need hold."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import unquote, urlsplit

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Served:
    """One object: its size, its ETag, and a function that gives any of its bytes."""

    size: int
    etag: str
    read: Callable[[int, int], bytes | memoryview]

    @classmethod
    def of(cls, body: bytes, etag: str = "v1") -> Served:
        return cls(len(body), f'"{etag}"', lambda start, end: memoryview(body)[start:end])


@dataclass
class RangeServer:
    """Serves `objects` (by path without the leading slash) on loopback."""

    objects: dict[str, Served] = field(default_factory=dict)
    ignores_ranges: bool = False
    answers_at_most: int | None = None
    redirect_to: str | None = None
    connections: int = 0
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def __enter__(self) -> Self:
        server = self

        class Handler(_Handler):
            world = server

        self._http = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._http.server_address[1]

    def wrap_tls(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._http.socket = context.wrap_socket(
            self._http.socket, server_side=True, do_handshake_on_connect=False
        )

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.address[1]}/{path}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """Clients of these tests hang up in the middle; that is no news."""


class _Handler(BaseHTTPRequestHandler):
    world: RangeServer
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.world.connections += 1

    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        path = unquote(urlsplit(self.path).path.lstrip("/"))
        self.world.requests.append((path, {k.lower(): v for k, v in self.headers.items()}))
        if self.world.redirect_to is not None:
            self._answer(302, b"", Location=self.world.redirect_to)
            return
        served = self.world.objects.get(path)
        if served is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        wanted = self.headers.get("If-Match")
        if wanted is not None and wanted != served.etag:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None or self.world.ignores_ranges:
            self._send(200, served, 0, served.size)
            return
        start = int(asked[1])
        end = min(int(asked[2] or served.size) + 1, served.size)
        if start >= served.size:
            self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
            return
        self._send(206, served, start, min(end, start + (self.world.answers_at_most or end)))

    def _send(self, status, served, start, end):
        self.send_response(status)
        self.send_header("ETag", served.etag)
        self.send_header("Content-Length", str(end - start))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{served.size}")
        self.end_headers()
        while start < end:
            block = served.read(start, min(start + _BLOCK, end))
            self.wfile.write(block)
            start += len(block)

    def _answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
