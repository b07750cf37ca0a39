"""Fetches one object in a process of its own: URL, size, folder, how it is written."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from modelcache_agent.fetch import FetchConfig, FetchEngine, FetchFile, FetchJob
from modelcache_agent.fetch.partial import PartialFile
from modelcache_api.manifest import SourceFile
from modelcache_api.wire import GrantedFile

MIB = 1 << 20


class Grants:
    def __init__(self, url: str, source: SourceFile) -> None:
        self._url = url
        self._source = source

    async def current(self, uid: str, path: str) -> GrantedFile:
        return GrantedFile(
            path=path,
            size_bytes=self._source.size_bytes,
            etag=self._source.etag,
            url=self._url,
            expires_at=time.time() + 3600,
        )

    refresh = current


async def run(url: str, etag: str, size: int, folder: Path, how: str) -> None:
    source = SourceFile("object.bin", size, etag)
    job = FetchJob(
        "v1",
        "sha256:" + "0" * 64,
        (FetchFile(source),),
        folder,
        through_memory=how == "through-memory",
    )
    async with FetchEngine(Grants(url, source), FetchConfig(buffer_bytes=32 * MIB)) as engine:
        began = time.monotonic()
        outcome = await engine.fetch(job)
    if outcome.failure is not None:
        raise SystemExit(outcome.failure.message)
    print(f"{size / MIB / (time.monotonic() - began):.0f} MiB/s")


if __name__ == "__main__":
    if sys.argv[5] == "no-direct":
        # As on a file system that refuses O_DIRECT: everything goes through the page cache.
        PartialFile._open_direct = lambda _self: -1
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5]))
