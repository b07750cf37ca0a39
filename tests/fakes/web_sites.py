"""Plain web servers: a real one over a folder, and a stand-in whose faults are chosen."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aiohttp import web

from fakes.hub_http import Asked, LoopbackServer, Told, ranged

LONG_AGO = "Wed, 01 Jan 2020 00:00:00 GMT"
LATER = "Thu, 02 Jan 2020 00:00:00 GMT"


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, body in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)


def write_checksums(folder: Path, *options: str, name: str = "SHA256SUMS") -> None:
    """As people do it: everything below the folder, by sha256sum itself."""
    tool = shutil.which("sha256sum")
    assert tool is not None, "coreutils has it"
    paths = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    done = subprocess.run([tool, *options, *paths], cwd=folder, capture_output=True, check=True)
    (folder / name).write_bytes(done.stdout)


class StaticSite:
    """aiohttp's own static files: strong ETags, ranges, If-Match; in a thread of its own."""

    def __init__(self, folder: Path, tls: ssl.SSLContext | None = None) -> None:
        self._folder = folder
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.answers: list[tuple[str, str, int]] = []
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def served(self, method: str, path: str) -> list[int]:
        return [status for m, p, status in self.answers if (m, p) == (method, path)]

    def _call(self, work) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        async def note(request, response):
            self.answers.append((request.method, request.path, response.status))

        app = web.Application()
        app.on_response_prepare.append(note)
        app.router.add_static("/", self._folder)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]


@dataclass(frozen=True)
class Page:
    """One file of the stand-in. `etag` is as it stands in the header."""

    body: bytes
    etag: str | None = None
    last_modified: str | None = None


class WebServer(LoopbackServer):
    """A stand-in with what servers differ in: which of the guards they know, ranges, HEAD."""

    def __init__(self) -> None:
        super().__init__(self._serve)
        self.pages: dict[str, Page] = {}
        self.knows_guards = True
        self.knows_ranges = True
        self.head_status: int | None = None

    def put(self, files: Mapping[str, bytes], etag: str | None = '"v1"', date: str | None = None):
        for path, body in files.items():
            self.pages[path] = Page(body, etag, date)

    def asked(self, method: str, path: str = "") -> list[Asked]:
        return [one for one in self.requests if one.method == method and path in one.path]

    def _serve(self, asked: Asked) -> Told:
        page = self.pages.get(asked.path.removeprefix("/"))
        if page is None:
            return Told(404, b"<html>nothing here</html>", {"Content-Type": "text/html"})
        if asked.method == "HEAD" and self.head_status is not None:
            return Told(self.head_status)
        headers = {"ETag": page.etag, "Last-Modified": page.last_modified}
        stated = {name: value for name, value in headers.items() if value is not None}
        if self.knows_guards and _is_another(asked, page):
            return Told(412)
        if asked.method == "HEAD" or not self.knows_ranges:
            return Told(200, page.body, stated)
        return ranged(asked, page.body, stated)


def _is_another(asked: Asked, page: Page) -> bool:
    if "if-match" in asked.headers:
        return asked.headers["if-match"] != page.etag
    return asked.headers.get("if-unmodified-since", page.last_modified) != page.last_modified
