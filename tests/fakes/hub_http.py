"""Small HTTP servers on loopback whose answers are functions of the request."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True)
class Asked:
    """One request. `path` is unquoted, `raw_path` as it was sent."""

    method: str
    path: str
    raw_path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Told:
    """One answer; a HEAD gets its head alone.

    `hang_seconds` waits first, `cut` hangs up without a word, `cut_at` within the body.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_seconds: float = 0.0
    cut: bool = False
    cut_at: int | None = None
    drip_seconds: float = 0.0


class LoopbackServer:
    """`with server:` it serves; `answer` is the site, `override` comes before it."""

    def __init__(self, answer: Callable[[Asked], Told]) -> None:
        self.answer = answer
        self.override: Callable[[Asked], Told | None] = lambda _: None
        self.requests: list[Asked] = []
        self.sent_bytes = 0
        self.connections = 0
        self.scheme = "http"
        self._http = _Server(("127.0.0.1", 0), _make_handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def speak_tls(self, context) -> None:
        self.scheme = "https"
        self._http.socket = context.wrap_socket(
            self._http.socket, server_side=True, do_handshake_on_connect=False
        )


def ranged(asked: Asked, body: bytes, headers: Mapping[str, str]) -> Told:
    """The body, or the range of it that is asked for."""
    found = _RANGE.fullmatch(asked.headers.get("range", ""))
    if found is None:
        return Told(200, body, headers)
    start, end = int(found[1]), min(int(found[2] or len(body)) + 1, len(body))
    if start >= end:
        return Told(416, b"", {**headers, "Content-Range": f"bytes */{len(body)}"})
    span = {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"}
    return Told(206, body[start:end], {**headers, **span})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Clients hang up and refuse certificates; that is what some tests are about."""


def _make_handler(server: LoopbackServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.connections += 1

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
            headers = {k.lower(): v for k, v in self.headers.items()}
            asked = Asked(self.command, unquote(parts.path), parts.path, query, headers)
            server.requests.append(asked)
            told = server.override(asked) or server.answer(asked)
            time.sleep(told.hang_seconds)
            if told.cut:
                self.close_connection = True
                return
            self.send_response_only(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in told.headers:
                self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            if self.command != "HEAD":
                self._send(told)

        def _send(self, told: Told) -> None:
            step = 1 if told.drip_seconds else 1 << 20
            body = told.body[: told.cut_at]
            for start in range(0, len(body), step):
                self.wfile.write(body[start : start + step])
                server.sent_bytes += len(body[start : start + step])
                time.sleep(told.drip_seconds)
            self.close_connection = self.close_connection or told.cut_at is not None

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    return Handler
