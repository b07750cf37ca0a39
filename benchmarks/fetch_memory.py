"""fetch-memory: peak resident memory of a process that fetches 256 MiB, and 4 GiB, in MiB.

The source is a synthetic web server in a process of its own, so no store must hold the bytes. What
is wanted is a figure that does not depend on the size of the file.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from figure import Figure, interleave, make_figure

from modelcache_agent.fetch import FetchEngine, FetchFile, FetchJob
from modelcache_api.manifest import SourceFile
from modelcache_api.wire import GrantedFile

MIB = 1 << 20
SMALL = 256 * MIB
LARGE = 4096 * MIB
ROUNDS = 3
ETAG = '"synthetic"'
BLOCK = MIB


class Synthetic(BaseHTTPRequestHandler):
    """Serves ranges of one endless object, a random MiB repeated; the path is its size."""

    protocol_version = "HTTP/1.1"
    pattern: ClassVar[bytes] = os.urandom(MIB)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        size = int(self.path.lstrip("/"))
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last) + 1, size)
        self.send_response(206)
        self.send_header("ETag", ETAG)
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        while start < end:
            offset = start % MIB
            count = min(MIB - offset, end - start)
            self.wfile.write(memoryview(self.pattern)[offset : offset + count])
            start += count


def serve() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Synthetic)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def fetch(port: int, size: int, folder: Path) -> None:
    """Body of the measured process; prints its peak in KiB."""

    class Grants:
        async def current(self, uid: str, path: str) -> GrantedFile:
            del uid
            url = f"http://127.0.0.1:{port}/{size}"
            expires = time.time() + 3600
            return GrantedFile(path=path, size_bytes=size, etag=ETAG, url=url, expires_at=expires)

        refresh = current

    async def run() -> None:
        file = FetchFile(SourceFile("object.bin", size, ETAG))
        job = FetchJob("bench", "sha256:" + "0" * 64, (file,), folder)
        async with FetchEngine(Grants()) as engine:
            outcome = await engine.fetch(job)
        if outcome.failure is not None:
            raise RuntimeError(outcome.failure.message)

    asyncio.run(run())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peak_mib(port: int, size: int) -> float:
    folder = tempfile.mkdtemp(prefix="modelcache-bench-")
    try:
        answer = subprocess.run(
            [sys.executable, __file__, "fetch", str(port), str(size), folder],
            check=True,
            capture_output=True,
            text=True,
        )
        return int(answer.stdout) / 1024
    finally:
        shutil.rmtree(folder)


def measure() -> Figure:
    with subprocess.Popen(
        [sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            port = int(server.stdout.readline()) if server.stdout else 0
            samples = interleave(
                {
                    "ours": lambda: peak_mib(port, LARGE),
                    "ours, 256 MiB": lambda: peak_mib(port, SMALL),
                },
                ROUNDS,
            )
        finally:
            server.kill()
    return make_figure(
        "fetch-memory",
        "MiB",
        samples,
        notes="ours: one file of 4 GiB; a ratio of 1 means: independent of the file's size",
    )


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        fetch(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
