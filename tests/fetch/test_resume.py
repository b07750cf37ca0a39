"""Stops, kills and leftovers: what is on disk is proved, never trusted."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.fault_proxy import Fault
from fakes.fetch_world import Grants, make_job, plain_url, quick, random_body, until
from fakes.range_server import Served
from modelcache_agent.decide.transfer_plan import StallPolicy
from modelcache_agent.fetch import FetchCancelledError, FetchEngine
from modelcache_api.manifest import PIECE_BYTES, SourceFile

RUNNER = Path(__file__).with_name("kill_runner.py")
MIB = 1 << 20


def part_file(directory: Path) -> Path:
    (found,) = directory.glob("*.part")
    return found


async def fetch_once(grants, job, config=None):
    async with FetchEngine(grants, config or quick()) as engine:
        return await engine.fetch(job), engine.counters()


@pytest.mark.parametrize("new_size", [20 * MIB, 60 * MIB], ids=["shorter", "longer"])
async def test_C12_partial_of_another_version_is_dropped(s3, s3_proxy, tmp_path, new_size):
    old, new = random_body(40 * MIB, 1), random_body(new_size, 2)
    sources = {"m.bin": s3.put("m.bin", old)}
    job = make_job(sources, tmp_path / "p")
    # A first try that breaks after 24 MiB and gives up there.
    s3_proxy.script("m.bin", Fault(close_after=24 * MIB), times=1)
    s3_proxy.script("m.bin", Fault(close_after=0))
    outcome, _ = await fetch_once(s3.grants(sources), job, quick(streams=1))
    assert outcome.failure is not None
    s3_proxy.heal()

    sources = {"m.bin": s3.put("m.bin", new)}
    job = make_job(sources, tmp_path / "p")
    outcome, _ = await fetch_once(s3.grants(sources), job)

    assert outcome.failure is None
    assert outcome.files[0].sha256 == hashlib.sha256(new).hexdigest()
    assert outcome.files[0].partial_path.read_bytes() == new


async def test_C12_source_replaced_between_two_parts_is_an_error_never_a_mixture(
    s3, s3_proxy, tmp_path
):
    old, new = random_body(40 * MIB, 1), random_body(40 * MIB, 2)
    sources = {"m.bin": s3.put("m.bin", old)}
    replaced = []

    def replace():
        if not replaced:
            replaced.append(s3.put("m.bin", new))

    s3_proxy.script("m.bin", Fault(), times=1)
    s3_proxy.script("m.bin", Fault(hook=replace), times=1)
    outcome, _ = await fetch_once(
        s3.grants(sources), make_job(sources, tmp_path / "p"), quick(streams=1, stall=StallPolicy())
    )
    assert outcome.failure is not None
    assert outcome.failure.reason == "SourceChanged"
    assert outcome.failure.path == "m.bin"
    assert outcome.failure.retry_after_seconds is None


def run_and_kill(arguments, reached):
    """Run the engine in a child until `reached()`, then SIGKILL it; True if it got to the end."""
    child = subprocess.Popen([sys.executable, str(RUNNER), *map(str, arguments)])
    try:
        while child.poll() is None and not reached():
            time.sleep(0.001)
    finally:
        child.kill()
        child.wait()
    return child.returncode == 0


@pytest.mark.parametrize("percent", [1, 50, 99])
async def test_C13_killed_in_the_middle_resumes_to_the_right_hash(s3, s3_proxy, tmp_path, percent):
    body = random_body(90 * MIB, percent)
    sources = {"m.bin": s3.put("m.bin", body)}
    directory = tmp_path / "p"
    arguments = [directory, s3.url("m.bin"), len(body), sources["m.bin"].etag, 2]
    # Slow enough to be caught in the middle, quick enough not to wait for.
    s3_proxy.script("m.bin", Fault(trickle=(MIB, 0.004)))
    target = len(body) * percent // 100
    for _ in range(2):
        # The second child resumes, needs fewer bytes, and so is killed later or not at all.
        goal = s3_proxy.total_bytes + target
        await asyncio.to_thread(run_and_kill, arguments, lambda: s3_proxy.total_bytes >= goal)  # noqa: B023
    s3_proxy.heal()
    outcome, _ = await fetch_once(s3.grants(sources), make_job(sources, directory))

    assert outcome.failure is None
    assert outcome.files[0].sha256 == hashlib.sha256(body).hexdigest()
    assert outcome.files[0].partial_path.read_bytes() == body


async def test_C13_kill_costs_at_most_one_part_per_stream(s3, s3_proxy, tmp_path):
    body = random_body(90 * MIB, 5)
    sources = {"m.bin": s3.put("m.bin", body)}
    streams = 2
    s3_proxy.script("m.bin", Fault(trickle=(MIB, 0.005)))
    arguments = [tmp_path / "p", s3.url("m.bin"), len(body), sources["m.bin"].etag, streams]
    half = len(body) // 2
    finished = await asyncio.to_thread(
        run_and_kill, arguments, lambda: s3_proxy.total_bytes >= half
    )
    assert not finished
    s3_proxy.heal()
    outcome, counters = await fetch_once(
        s3.grants(sources), make_job(sources, tmp_path / "p"), quick(streams=streams)
    )
    assert outcome.files[0].sha256 == hashlib.sha256(body).hexdigest()
    # Bytes in the sockets at the moment of the kill were sent, but never arrived.
    kept = len(body) - counters.network_bytes
    assert kept >= half - streams * 2 * PIECE_BYTES
    assert counters.proved_bytes >= kept


async def test_C13_right_length_with_zeros_in_its_second_half_is_found(server, tmp_path):
    body = random_body(40 * MIB)
    server.objects["m.bin"] = Served.of(body)
    sources = {"m.bin": SourceFile("m.bin", len(body), '"v1"')}
    grants = Grants(sources, server.url)
    job = make_job(sources, tmp_path / "p")
    await fetch_once(grants, job)
    with part_file(job.directory).open("r+b") as file:
        file.truncate(20 * MIB)
        file.truncate(40 * MIB)
    server.requests.clear()

    outcome, counters = await fetch_once(grants, job)

    assert outcome.files[0].sha256 == hashlib.sha256(body).hexdigest()
    assert part_file(job.directory).read_bytes() == body
    assert counters.network_bytes == 24 * MIB  # the three pieces that the zeros touch


async def test_finished_partials_are_proved_without_a_request(server, tmp_path):
    body = random_body(20 * MIB)
    server.objects["m.bin"] = Served.of(body)
    sources = {"m.bin": SourceFile("m.bin", len(body), '"v1"')}
    job = make_job(sources, tmp_path / "p")
    first, _ = await fetch_once(Grants(sources, server.url), job)
    server.requests.clear()

    second, counters = await fetch_once(Grants(sources, server.url), job)

    assert second == first
    assert server.requests == []
    assert counters.proved_bytes == len(body)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: text[: len(text) // 2], id="cut in a line"),
        pytest.param(lambda text: text + b"0 zz\n", id="a line of rubbish"),
        pytest.param(lambda text: b"", id="empty"),
        pytest.param(lambda text: b"\x00" * len(text), id="zeros"),
        pytest.param(lambda text: text.replace(b"uid-1", b"uid-2"), id="of another version"),
    ],
)
async def test_C12_damaged_journal_costs_bytes_never_truth(server, tmp_path, damage):
    body = random_body(20 * MIB)
    server.objects["m.bin"] = Served.of(body)
    sources = {"m.bin": SourceFile("m.bin", len(body), '"v1"')}
    job = make_job(sources, tmp_path / "p")
    await fetch_once(Grants(sources, server.url), job)
    (journal,) = job.directory.glob("*.journal")
    journal.write_bytes(damage(journal.read_bytes()))

    outcome, _ = await fetch_once(Grants(sources, server.url), job)

    assert outcome.files[0].sha256 == hashlib.sha256(body).hexdigest()
    assert part_file(job.directory).read_bytes() == body


async def test_C15_leftovers_of_other_files_are_removed_and_strangers_are_not(server, tmp_path):
    server.objects["m.bin"] = Served.of(b"abc")
    sources = {"m.bin": SourceFile("m.bin", 3, '"v1"')}
    directory = tmp_path / "p"
    directory.mkdir()
    (directory / "0123.part").write_bytes(b"old")
    (directory / "0123.journal").write_bytes(b"old")
    (directory / "README").write_bytes(b"not ours")
    await fetch_once(Grants(sources, server.url), make_job(sources, directory))
    names = sorted(path.suffix for path in directory.iterdir())
    assert names == ["", ".journal", ".part"]


async def test_cancel_is_prompt_and_leaves_a_resumable_state(server, proxy, tmp_path):
    body = random_body(40 * MIB)
    server.objects["m.bin"] = Served.of(body)
    sources = {"m.bin": SourceFile("m.bin", len(body), '"v1"')}
    job = make_job(sources, tmp_path / "p")
    proxy.script("m.bin", Fault(stall_after=20 * MIB))
    config = quick(streams=2, stall=StallPolicy(window_seconds=60))
    grants = Grants(sources, plain_url(proxy.endpoint))
    async with FetchEngine(grants, config) as engine:
        running = asyncio.create_task(engine.fetch(job))
        await until(lambda: engine.counters().network_bytes >= 16 * MIB)
        began = time.monotonic()
        await engine.cancel("uid-1")
        assert time.monotonic() - began < 1.0
        with pytest.raises(FetchCancelledError):
            await running
        proxy.heal()
        proxy.reset_counts()
        outcome = await engine.fetch(job)
    assert outcome.failure is None
    assert outcome.files[0].sha256 == hashlib.sha256(body).hexdigest()
    assert proxy.total_bytes <= len(body) - 16 * MIB + 2 * PIECE_BYTES


async def test_failed_job_keeps_finished_files_and_fetches_only_the_rest(server, proxy, tmp_path):
    bodies = {f"f{index}.bin": random_body(3 * MIB, index) for index in range(6)}
    for path, body in bodies.items():
        server.objects[path] = Served.of(body)
    sources = {path: SourceFile(path, len(body), '"v1"') for path, body in bodies.items()}
    job = make_job(sources, tmp_path / "p")
    proxy.script("f5.bin", Fault(status=500, delay=0.02))
    async with FetchEngine(Grants(sources, plain_url(proxy.endpoint)), quick()) as engine:
        first = await engine.fetch(job)
        assert first.failure.reason == "SourceError"
        assert first.failure.path == "f5.bin"
        done = {file.path for file in first.files}
        proxy.heal()
        proxy.reset_counts()
        second = await engine.fetch(job)
    assert second.failure is None
    assert [file.path for file in second.files] == list(bodies)
    assert not done & set(proxy.gets)
    assert "f5.bin" in proxy.gets


def test_names_in_the_folder_never_come_from_the_key(tmp_path):
    from modelcache_agent.fetch.partial import file_stem

    for path in ("../../etc/passwd", "a" * 5000, "x\x00y", "\udc80"):
        stem = file_stem(path)
        assert len(stem) == 40
        assert os.path.normpath(stem) == stem
        assert stem.isalnum()
