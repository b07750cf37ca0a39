"""Whole jobs: sizes, many files, fairness, single flight, space, memory of hostile names."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from fakes.fault_proxy import Fault
from fakes.fetch_world import (
    Grants,
    content_of,
    make_job,
    plain_url,
    quick,
    random_body,
    safetensors_body,
    until,
)
from fakes.range_server import Served
from modelcache_agent.fetch import FetchEngine
from modelcache_api.manifest import PIECE_BYTES, SourceFile
from modelcache_api.names import Reason

MIB = 1 << 20


def serve(server, bodies):
    for path, body in bodies.items():
        server.objects[path] = Served.of(body, hashlib.md5(body).hexdigest())
    return {
        path: SourceFile(path, len(body), server.objects[path].etag)
        for path, body in bodies.items()
    }


@pytest.mark.parametrize(
    "size",
    [0, 1, 4095, 4096, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + 17],
)
async def test_C29_every_size_arrives_byte_equal(server, tmp_path, size):
    body = random_body(size)
    sources = serve(server, {"data.txt": body})
    job = make_job(sources, tmp_path / "p")
    async with FetchEngine(Grants(sources, server.url), quick()) as engine:
        outcome = await engine.fetch(job)
    assert outcome.failure is None
    (file,) = outcome.files
    assert file.content == content_of("data.txt", body)
    assert file.partial_path.read_bytes() == body


async def test_C29_empty_weights_file_is_refused(server, tmp_path):
    sources = serve(server, {"model.safetensors": b"", "config.json": b""})
    async with FetchEngine(Grants(sources, server.url), quick()) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
    assert outcome.failure.reason == Reason.NOT_A_MODEL
    assert outcome.failure.path == "model.safetensors"
    assert "empty" in outcome.failure.message


async def test_many_streams_and_little_memory_give_the_same_bytes(server, tmp_path):
    """With one buffer a stream, pieces that wait for the digest are read back from disk."""
    body = random_body(100 * MIB + 5)
    sources = serve(server, {"m.bin": body})
    config = quick(streams=6, part_pieces=3, buffer_bytes=1)
    async with FetchEngine(Grants(sources, server.url), config) as engine:
        outcome = await engine.fetch(make_job(sources, tmp_path / "p"))
    assert outcome.files[0].content == content_of("m.bin", body)
    assert outcome.files[0].partial_path.read_bytes() == body


async def test_small_files_use_kept_connections_and_are_not_starved(server, tmp_path):
    bodies = {f"small/{index}.json": random_body(100, index) for index in range(300)}
    bodies["big.bin"] = random_body(80 * MIB)
    sources = serve(server, bodies)
    order = []
    config = quick(streams=4)
    async with FetchEngine(Grants(sources, server.url), config) as engine:
        outcome = await engine.fetch(
            make_job(sources, tmp_path / "p"),
            lambda progress: order.append((progress.finished_files, progress.verified_bytes)),
        )
    assert outcome.failure is None
    assert {file.path: file.sha256 for file in outcome.files} == {
        path: hashlib.sha256(body).hexdigest() for path, body in bodies.items()
    }
    assert server.connections <= 8
    paths = [path for path, _ in server.requests]
    assert paths.index("big.bin") < 4
    last_of_big = len(paths) - 1 - paths[::-1].index("big.bin")
    assert sum(path.startswith("small/") for path in paths[:last_of_big]) > 3
    assert order[-1] == (301, sum(map(len, bodies.values())))


async def test_small_job_is_not_starved_by_a_large_one(server, proxy, tmp_path):
    big, small = random_body(80 * MIB), random_body(MIB, 1)
    sources = serve(server, {"big.bin": big, "small.bin": small})
    proxy.script("big.bin", Fault(trickle=(MIB, 0.01)))
    grants = Grants(sources, plain_url(proxy.endpoint))
    jobs = [
        make_job({path: sources[path]}, tmp_path / path, uid=path)
        for path in ("big.bin", "small.bin")
    ]
    async with FetchEngine(grants, quick(streams=2, part_pieces=1)) as engine:
        large = asyncio.create_task(engine.fetch(jobs[0]))
        await until(lambda: proxy.total_bytes > 0)
        await engine.fetch(jobs[1])
        assert not large.done()
        assert (await large).failure is None


async def test_two_callers_of_one_uid_share_one_flight(server, tmp_path):
    body = random_body(20 * MIB)
    sources = serve(server, {"m.bin": body})
    job = make_job(sources, tmp_path / "p")
    async with FetchEngine(Grants(sources, server.url), quick()) as engine:
        first, second = await asyncio.gather(engine.fetch(job), engine.fetch(job))
        assert first == second
        assert engine.counters().network_bytes == len(body)


async def test_one_caller_leaving_does_not_stop_the_other(server, proxy, tmp_path):
    sources = serve(server, {"m.bin": random_body(20 * MIB)})
    proxy.script("m.bin", Fault(trickle=(MIB, 0.01)))
    job = make_job(sources, tmp_path / "p")
    async with FetchEngine(Grants(sources, plain_url(proxy.endpoint)), quick()) as engine:
        leaving = asyncio.create_task(engine.fetch(job))
        staying = asyncio.create_task(engine.fetch(job))
        await until(lambda: proxy.total_bytes > 0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert (await staying).failure is None


async def test_a_job_whose_callers_all_left_ends_without_a_complaint(server, proxy, tmp_path):
    sources = serve(server, {"m.bin": random_body(20 * MIB)})
    proxy.script("m.bin", Fault(stall_after=MIB))
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with FetchEngine(Grants(sources, plain_url(proxy.endpoint)), quick()) as engine:
        running = asyncio.create_task(engine.fetch(make_job(sources, tmp_path / "p")))
        await until(lambda: engine.counters().requests > 0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    del running
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_leaving_the_engine_joins_all_threads_and_interrupts_jobs(server, proxy, tmp_path):
    sources = serve(server, {"m.bin": random_body(20 * MIB)})
    proxy.script("m.bin", Fault(stall_after=MIB))
    job = make_job(sources, tmp_path / "p")
    engine = FetchEngine(Grants(sources, plain_url(proxy.endpoint)))
    async with engine:
        running = asyncio.create_task(engine.fetch(job))
        await until(lambda: engine.counters().requests > 0)
    assert running.done()
    assert not [t for t in threading.enumerate() if t.name.startswith("fetch-")]
    assert running.exception() is not None


async def test_C05_equal_bytes_under_three_etags_give_one_content(s3, tmp_path):
    """Multipart uploads carry ETags that are no MD5 of anything."""
    body = safetensors_body(24 * MIB + 11)
    contents = set()
    for part in (None, 5 * MIB, 8 * MIB):
        source = s3.put("model.safetensors", body)
        if part is not None:
            source = _put_in_parts(s3, "model.safetensors", body, part)
            assert "-" in source.etag
        sources = {source.path: source}
        async with FetchEngine(s3.grants(sources), quick()) as engine:
            outcome = await engine.fetch(make_job(sources, tmp_path / str(part)))
            assert engine.counters().network_bytes == len(body)
        contents.add(outcome.files[0].content)
    assert contents == {content_of("model.safetensors", body)}


def _put_in_parts(s3, path, body, part):
    client, bucket, key = s3.bucket.client, s3.bucket.name, f"{s3.prefix}/{path}"
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    parts = []
    for number, start in enumerate(range(0, len(body), part), 1):
        answer = client.upload_part(
            Bucket=bucket,
            Key=key,
            UploadId=upload,
            PartNumber=number,
            Body=body[start : start + part],
        )
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
    done = client.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
    )
    return SourceFile(path, len(body), done["ETag"])


async def test_C09_finished_files_are_kept_while_credentials_are_expired(server, proxy, tmp_path):
    bodies = {f"f{index:02}.bin": random_body(2 * MIB, index) for index in range(12)}
    sources = serve(server, bodies)
    grants = Grants(sources, plain_url(proxy.endpoint))
    expired = Fault(status=400, body=b"<Error><Code>ExpiredToken</Code></Error>", delay=0.1)
    for index in range(5, 11):
        proxy.script(f"f{index:02}", expired)
    job = make_job(sources, tmp_path / "p")
    async with FetchEngine(grants, quick()) as engine:
        first = await engine.fetch(job)
        assert first.failure.reason == Reason.CREDENTIALS_EXPIRED
        assert first.files
        proxy.heal()
        second = await engine.fetch(job)
    assert second.failure is None
    assert len(second.files) == 12
    assert proxy.total_bytes < 1.2 * sum(map(len, bodies.values()))


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    image, mount = tmp_path / "disk.img", tmp_path / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    make = ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)]
    try:
        subprocess.run(make, check=True, capture_output=True)
        subprocess.run(
            ["mount", "-o", "loop", str(image), str(mount)], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


async def test_C16_full_disk_names_the_numbers_and_gives_space_back(server, small_disk, tmp_path):
    """Another process eats the space between two files of the job."""
    bodies = {"a.bin": random_body(30 * MIB), "b.bin": random_body(20 * MIB, 1)}
    sources = serve(server, bodies)
    job = make_job(sources, small_disk / "p")
    (small_disk / "foreign").write_bytes(bytes(20 * MIB))
    async with FetchEngine(Grants(sources, server.url), quick(file_attempts=2)) as engine:
        first = await engine.fetch(job)
        assert first.failure.reason == Reason.INSUFFICIENT_SPACE
        assert "bytes cannot be reserved" in first.failure.message
        assert "are free" in first.failure.message
        assert first.failure.retry_after_seconds is not None
        (small_disk / "foreign").unlink()
        second = await engine.fetch(job)
    assert second.failure is None
    assert {f.path: f.sha256 for f in second.files} == {
        path: hashlib.sha256(body).hexdigest() for path, body in bodies.items()
    }


@pytest.fixture
def shared_memory():
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no writable tmpfs at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="modelcache-test-") as folder:
        yield Path(folder)


async def test_file_system_without_direct_io_is_written_through_the_cache(server, shared_memory):
    body = random_body(60 * MIB + 3)
    sources = serve(server, {"m.bin": body})
    directory = shared_memory / "p"
    job = make_job(sources, directory)
    async with FetchEngine(Grants(sources, server.url), quick()) as engine:
        outcome = await engine.fetch(job)
    assert outcome.files[0].content == content_of("m.bin", body)


async def test_finished_state_in_memory_is_dropped_if_somebody_touched_the_file(
    server, proxy, tmp_path
):
    bodies = {"a.bin": random_body(MIB), "b.bin": random_body(MIB, 1)}
    sources = serve(server, bodies)
    proxy.script("b.bin", Fault(status=404, delay=0.2))
    job = make_job(sources, tmp_path / "p")
    async with FetchEngine(Grants(sources, plain_url(proxy.endpoint)), quick()) as engine:
        first = await engine.fetch(job)
        (done,) = first.files
        with done.partial_path.open("r+b") as file:
            file.write(b"damage")
        proxy.heal()
        second = await engine.fetch(job)
    assert {f.path: f.sha256 for f in second.files} == {
        path: hashlib.sha256(body).hexdigest() for path, body in bodies.items()
    }
