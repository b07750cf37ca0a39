"""Runs the engine for one file in a process of its own, to be killed by a test."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.fetch_world import Grants, make_job, quick
from modelcache_agent.fetch import FetchEngine
from modelcache_api.cut import Cut
from modelcache_api.manifest import SourceFile


async def main() -> None:
    directory, url, size, etag, streams, *cuts = sys.argv[1:]
    cut = Cut(int(size), b"", tuple(map(tuple, json.loads(cuts[0])))) if cuts else None
    taken = int(size) if cut is None else cut.size_bytes
    sources = {"m.bin": SourceFile("m.bin", taken, etag, cut=cut)}
    async with FetchEngine(Grants(sources, lambda _: url), quick(streams=int(streams))) as engine:
        outcome = await engine.fetch(make_job(sources, Path(directory)))
    sys.exit(outcome.failure is not None)


asyncio.run(main())
