"""A scripted S3 server for answers that a real store gives only on bad days."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape


@dataclass(frozen=True)
class Request:
    """What arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """What is sent back.

    `hang_seconds` waits first; `cut` closes without an answer, `cut_at` within the body; `drip`
    sends its `head` or `body` byte by byte.
    """

    status: int = 200
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_seconds: float = 0.0
    cut: bool = False
    cut_at: int | None = None
    drip: str = ""
    drip_seconds: float = 0.0


Script = Callable[[Request], Answer]


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Refused handshakes are what some tests are about."""


class S3Stub:
    """Serves what the script says on a free port; use as a context manager."""

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.tls = tls
        self._server = _QuietServer(("127.0.0.1", 0), self._make_handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _make_handler(stub) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - two selves meet here
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {k: v[0] for k, v in parse_qs(parts.query, True).items()}
                headers = {k.lower(): v for k, v in self.headers.items()}
                request = Request(self.command, parts.path, query, headers)
                stub.requests.append(request)
                answer = stub.script(request)
                time.sleep(answer.hang_seconds)
                if answer.cut:
                    self.close_connection = True
                    return
                if answer.drip == "head":
                    self._drip(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100, answer.drip_seconds)
                    return
                body = b"" if self.command == "HEAD" else answer.body.encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if answer.drip == "body":
                    self._drip(body, answer.drip_seconds)
                else:
                    self.wfile.write(body[: answer.cut_at])
                    self.close_connection = self.close_connection or answer.cut_at is not None

            def _drip(self, data: bytes, seconds: float) -> None:
                for index in range(len(data)):
                    self.wfile.write(data[index : index + 1])
                    time.sleep(seconds)

            do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def error(status: int, code: str, message: str = "", **fields: str) -> Answer:
    """An S3 error document."""
    more = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    text = f"<Code>{code}</Code><Message>{escape(message)}</Message>{more}"
    return Answer(status, f'<?xml version="1.0"?><Error>{text}</Error>')


def listing(
    keys: Sequence[str | tuple[str, int, str]],
    *,
    bucket: str = "models",
    token: str | None = None,
    truncated: bool | None = None,
) -> Answer:
    """A page of ListObjectsV2. A key alone has ten bytes and some ETag."""
    rows = [(key, 10, '"e"') if isinstance(key, str) else key for key in keys]
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>{escape(etag)}</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for key, size, etag in rows
    )
    truncated = token is not None if truncated is None else truncated
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return Answer(
        200,
        f'<?xml version="1.0"?><ListBucketResult><Name>{bucket}</Name>{contents}'
        f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{more}</ListBucketResult>",
    )


def unversioned() -> Answer:
    """The answer to GetBucketVersioning of a bucket that keeps no versions."""
    return Answer(200, "<VersioningConfiguration/>")


def script_listing(*pages: Answer) -> Script:
    """Pages by their continuation tokens `1`, `2`, ...; no versions."""

    def answer(request: Request) -> Answer:
        if "versioning" in request.query:
            return unversioned()
        return pages[int(request.query.get("continuation-token", "0"))]

    return answer
