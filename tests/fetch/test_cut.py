"""A part of a file: literal bytes and ranges of the source's, fetched like any other file."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.fault_proxy import Fault
from fakes.fetch_world import Grants, make_job, plain_url, quick, random_body
from fakes.peer_world import BODY, FetchPair, PeerWorld
from fakes.range_server import Served
from modelcache_agent.decide.cut_plan import MAX_GAP_BYTES
from modelcache_agent.fetch import FetchEngine, FetchFile
from modelcache_api.cut import Cut
from modelcache_api.manifest import PIECE_BYTES, SourceFile

MIB = 1 << 20
KIB = 1 << 10
WHOLE = random_body(40 * MIB)
# Many near ones, one far away, one that is larger than a piece, one before the others.
RANGES = (
    *((start, start + 100 * KIB) for start in range(MIB, 9 * MIB, 110 * KIB)),
    (12 * MIB + 1, 22 * MIB + 3),
    (39 * MIB, 40 * MIB),
    (5, 6),
)
CUT = Cut(len(WHOLE), b"literal bytes" * 9, RANGES)
PART = CUT.literal + b"".join(WHOLE[start:end] for start, end in RANGES)
SOURCES = {"m.bin": SourceFile("m.bin", len(PART), '"v1"', cut=CUT)}


async def fetch(server, directory, url_of=None, **changes):
    job = make_job(SOURCES, directory)
    async with FetchEngine(Grants(SOURCES, url_of or server.url), quick(**changes)) as engine:
        return await engine.fetch(job), engine.counters()


def check(outcome):
    assert outcome.failure is None
    (file,) = outcome.files
    assert file.partial_path.read_bytes() == PART
    assert (file.size_bytes, file.sha256) == (len(PART), hashlib.sha256(PART).hexdigest())


async def test_neighbours_are_read_by_one_request_and_far_ones_alone(server, tmp_path):
    server.objects["m.bin"] = Served.of(WHOLE)
    outcome, counters = await fetch(server, tmp_path / "p", streams=1)
    check(outcome)
    parts = -(-len(PART) // PIECE_BYTES)
    # The near ones, the large one, the far one, the first one, and what a part's end divides.
    assert counters.requests <= 4 + parts
    assert all(headers["if-match"] == '"v1"' for _, headers in server.requests)
    gaps = len([1 for one, two in itertools.pairwise(RANGES) if two[0] > one[1]])
    assert counters.network_bytes <= len(PART) + gaps * MAX_GAP_BYTES


@pytest.mark.parametrize("most", [700 * KIB, 3 * MIB])
async def test_answers_that_are_shorter_than_asked_for_are_gone_on_with(server, tmp_path, most):
    server.objects["m.bin"] = Served.of(WHOLE)
    server.answers_at_most = most
    outcome, _ = await fetch(server, tmp_path / "p")
    check(outcome)


async def test_C04_an_answer_that_breaks_is_asked_for_again(server, proxy, tmp_path):
    server.objects["m.bin"] = Served.of(WHOLE)
    proxy.script("m.bin", Fault(close_after=64 * KIB), times=2)
    outcome, counters = await fetch(server, tmp_path / "p", plain_url(proxy.endpoint))
    check(outcome)
    assert sum(counters.retries.values()) >= 1


async def test_a_server_that_ignores_ranges_is_named(server, tmp_path):
    server.objects["m.bin"] = Served.of(WHOLE)
    server.ignores_ranges = True
    outcome, counters = await fetch(server, tmp_path / "p", streams=1)
    assert outcome.failure.reason == "SourceError"
    assert "all of it where a part is asked for" in outcome.failure.message
    assert counters.requests == 1


async def test_C12_another_file_of_the_same_size_is_an_error(server, tmp_path):
    server.objects["m.bin"] = Served.of(WHOLE, "v2")
    outcome, _ = await fetch(server, tmp_path / "p")
    assert outcome.failure.reason == "SourceChanged"


async def test_C13_killed_in_the_middle_it_goes_on_where_it_was(server, proxy, tmp_path):
    ranges = [[0, 20 * MIB], [21 * MIB, 40 * MIB]]
    cut = Cut(len(WHOLE), b"", tuple(map(tuple, ranges)))
    part = WHOLE[: 20 * MIB] + WHOLE[21 * MIB :]
    server.objects["m.bin"] = Served.of(WHOLE)
    url = plain_url(proxy.endpoint)("m.bin")
    proxy.script("m.bin", Fault(trickle=(MIB, 0.01)))
    runner = Path(__file__).with_name("kill_runner.py")
    arguments = [tmp_path / "p", url, len(WHOLE), '"v1"', 1, json.dumps(ranges)]
    await asyncio.to_thread(kill_at, runner, arguments, lambda: proxy.total_bytes >= 26 * MIB)
    proxy.heal()

    sources = {"m.bin": SourceFile("m.bin", len(part), '"v1"', cut=cut)}
    async with FetchEngine(Grants(sources, lambda _: url), quick(streams=1)) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
        counters = engine.counters()
    assert outcome.files[0].partial_path.read_bytes() == part
    assert counters.network_bytes <= len(part) - 2 * PIECE_BYTES
    assert counters.proved_bytes >= 2 * PIECE_BYTES


def kill_at(runner, arguments, reached):
    child = subprocess.Popen([sys.executable, str(runner), *map(str, arguments)])
    try:
        while child.poll() is None and not reached():
            time.sleep(0.001)
    finally:
        child.kill()
        child.wait()
    assert child.returncode != 0, "it was killed in the middle"


async def test_other_nodes_serve_the_part_as_it_is(server, tmp_path):
    world, peers = FetchPair(server, tmp_path), PeerWorld()
    cut = Cut(10 * len(BODY), b"", ((7, 7 + len(BODY)),))
    files = tuple(
        FetchFile(dataclasses.replace(file.source, cut=cut), file.expected)
        for file in world.job.files
    )
    world.job = dataclasses.replace(world.job, files=files)
    with peers.node("node-a", world.shelf("a", BODY)) as holder:
        _, counters = await world.fetch(peers, holder)
    assert (world.source_requests, counters.peer_bytes) == (0, len(BODY))
