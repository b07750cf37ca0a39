"""s3-to-disk: a model from an S3 store to this machine's disk, durable, in MiB/s.

All contenders read the same random objects from the same SeaweedFS on this machine (its page cache
warm, for all alike) and end with fsync of every file in a fresh folder. Ours also verifies: blake3
of each piece and SHA-256 of each file. The ceiling is the lesser of reading the same bytes to
nowhere and writing as many with O_DIRECT. Because the peers verify nothing, the two fastest run
once more with what a user would have to do for that: SHA-256 of each file, read back while it is in
memory. CPU is user and system time of the client, in seconds a GiB; the store's is not in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from boto3.s3.transfer import TransferConfig
from figure import Figure, interleave, make_figure
from obstore.store import S3Store

from modelcache_agent.fetch import FetchEngine, FetchFile, FetchJob
from modelcache_api.manifest import SourceFile
from modelcache_api.wire import GrantedFile
from modelcache_testbed.bucket import Bucket
from modelcache_testbed.seaweed import Seaweed

MIB = 1 << 20
SIZES = (512 * MIB, 256 * MIB, 256 * MIB)
TOTAL = sum(SIZES)
ROUNDS = 5
BLOCK = 8 * MIB


@dataclass
class Bench:
    """The store, its objects, and where the disk under test is."""

    bucket: Bucket
    sources: dict[str, SourceFile]
    folder: Path
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def url(self, key: str) -> str:
        return str(
            self.bucket.client.generate_presigned_url(
                "get_object", {"Bucket": self.bucket.name, "Key": key}, 3600
            )
        )

    def timed(self, who: str, work: Callable[[Path], None]) -> float:
        """MiB/s of work that fills a fresh folder; the folder is removed afterwards."""
        target = Path(tempfile.mkdtemp(dir=self.folder))
        os.sync()
        began, cpu = time.perf_counter(), cpu_seconds()
        try:
            work(target)
            seconds = time.perf_counter() - began
            self.cpu.setdefault(who, []).append((cpu_seconds() - cpu) * 1024 * MIB / TOTAL)
            return TOTAL / MIB / seconds
        finally:
            shutil.rmtree(target)

    def client_environment(self) -> dict[str, str]:
        """What a client program reads: the keys and the store, and nothing of this machine's."""
        store = self.bucket.store
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "AWS_ACCESS_KEY_ID": store.access_key,
            "AWS_SECRET_ACCESS_KEY": store.secret_key,
            "AWS_REGION": store.region,
        }


class Grants:
    """Signed URLs from the bench's own client."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    async def current(self, uid: str, path: str) -> GrantedFile:
        del uid
        source = self.bench.sources[path]
        return GrantedFile(
            path=path,
            size_bytes=source.size_bytes,
            etag=source.etag,
            url=self.bench.url(path),
            expires_at=time.time() + 3600,
        )

    refresh = current


def ours(bench: Bench, runner: asyncio.Runner, engine: FetchEngine) -> Callable[[Path], None]:
    """One engine for all rounds: an agent makes it once, and its buffers with it."""

    def work(target: Path) -> None:
        files = tuple(FetchFile(source) for source in bench.sources.values())
        job = FetchJob("bench", "sha256:" + "0" * 64, files, target)
        outcome = runner.run(engine.fetch(job))
        if outcome.failure is not None:
            raise RuntimeError(outcome.failure.message)

    return work


@contextmanager
def started_engine(bench: Bench) -> Iterator[tuple[asyncio.Runner, FetchEngine]]:
    """An engine and the loop that it lives on between the rounds."""
    with asyncio.Runner() as runner:
        engine = FetchEngine(Grants(bench))
        runner.run(engine.__aenter__())
        try:
            yield runner, engine
        finally:
            runner.run(engine.__aexit__(None, None, None))


def boto3_transfer(bench: Bench, at_once: int) -> Callable[[Path], None]:
    """The transfer manager with its defaults: 8 MiB parts, ten threads a file."""
    config = TransferConfig()

    def one(target: Path, key: str) -> None:
        file = target / key
        bench.bucket.client.download_file(bench.bucket.name, key, str(file), Config=config)
        fsync(file)

    def work(target: Path) -> None:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda key: one(target, key), bench.sources))

    return work


def obstore_stream(bench: Bench) -> Callable[[Path], None]:
    """One stream for each file, all files at once."""
    store = obstore_of(bench)

    def one(target: Path, key: str) -> None:
        with (target / key).open("wb", buffering=0) as file:
            for chunk in obstore.get(store, key).stream(min_chunk_size=BLOCK):
                file.write(chunk)
            os.fsync(file.fileno())

    def work(target: Path) -> None:
        with ThreadPoolExecutor(len(SIZES)) as pool:
            list(pool.map(lambda key: one(target, key), bench.sources))

    return work


def obstore_ranges(bench: Bench) -> Callable[[Path], None]:
    """Ranges of 8 MiB by four threads."""
    store = obstore_of(bench)

    def work(target: Path) -> None:
        fds = {key: os.open(target / key, os.O_CREAT | os.O_WRONLY) for key in bench.sources}

        def one(part: tuple[str, int, int]) -> None:
            key, start, end = part
            os.pwrite(fds[key], obstore.get_range(store, key, start=start, end=end), start)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, ranges(bench, BLOCK)))
        for fd in fds.values():
            os.fsync(fd)
            os.close(fd)

    return work


def obstore_of(bench: Bench) -> S3Store:
    store = bench.bucket.store
    options: dict[str, Any] = {"allow_http": True}
    return S3Store(
        bench.bucket.name,
        endpoint=store.endpoint,
        access_key_id=store.access_key,
        secret_access_key=store.secret_key,
        region=store.region,
        client_options=options,
        virtual_hosted_style_request=False,
    )


def s5cmd(bench: Bench) -> Callable[[Path], None]:
    """Its defaults: 256 workers over all files, five parts of 50 MiB a file."""
    flags = (f"--endpoint-url={bench.bucket.store.endpoint}", "--log=error")
    source = f"s3://{bench.bucket.name}/*"
    return client_program(bench, program("s5cmd"), *flags, "cp", source)


def rclone(bench: Bench) -> Callable[[Path], None]:
    """Its defaults, four files at once; it checks sizes, and MD5 where the ETag is one."""
    endpoint = bench.bucket.store.endpoint
    remote = f":s3,provider=SeaweedFS,env_auth=true,endpoint='{endpoint}':{bench.bucket.name}"
    return client_program(bench, program("rclone"), "copy", "--config=", remote)


def client_program(bench: Bench, *command: str) -> Callable[[Path], None]:
    """A program that takes the target folder as its last argument."""

    def work(target: Path) -> None:
        arguments = (*command, f"{target}/")
        subprocess.run(arguments, env=bench.client_environment(), check=True, capture_output=True)
        for key in bench.sources:
            fsync(target / key)

    return work


def then_verified(transfer: Callable[[Path], None]) -> Callable[[Path], None]:
    """The transfer, and SHA-256 of all files at once."""

    def work(target: Path) -> None:
        transfer(target)
        with ThreadPoolExecutor(len(SIZES)) as pool:
            list(pool.map(sha256_of, target.iterdir()))

    return work


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def cpu_seconds() -> float:
    """User and system time of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def loopback_to_null(bench: Bench, streams: int) -> Callable[[Path], None]:
    """The same bytes over the same wire, into one buffer a stream."""
    urls = {key: urlsplit(bench.url(key)) for key in bench.sources}

    def stream(parts: Iterator[tuple[str, int, int]], lock: threading.Lock) -> None:
        first = next(iter(urls.values()))
        connection = HTTPConnection(first.hostname or "", first.port)
        view = memoryview(mmap.mmap(-1, BLOCK))
        while True:
            with lock:
                part = next(parts, None)
            if part is None:
                connection.close()
                return
            key, start, end = part
            url = urls[key]
            headers = {"Range": f"bytes={start}-{end - 1}"}
            connection.request("GET", f"{url.path}?{url.query}", headers=headers)
            response = connection.getresponse()
            while response.readinto(view):
                pass

    def work(_: Path) -> None:
        parts, lock = ranges(bench, 4 * BLOCK), threading.Lock()
        threads = [threading.Thread(target=stream, args=(parts, lock)) for _ in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return work


def disk_write(target: Path) -> None:
    """As many bytes by O_DIRECT from four threads into reserved files, then fsync."""
    buffer = mmap.mmap(-1, BLOCK)
    buffer.write(os.urandom(BLOCK))
    fd = os.open(target / "raw", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    os.posix_fallocate(fd, 0, TOTAL)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda offset: os.pwrite(fd, buffer, offset), range(0, TOTAL, BLOCK)))
    os.fsync(fd)
    os.close(fd)


def ranges(bench: Bench, length: int) -> Iterator[tuple[str, int, int]]:
    for key, source in bench.sources.items():
        for start in range(0, source.size_bytes, length):
            yield key, start, min(start + length, source.size_bytes)


def fsync(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def fill(bucket: Bucket, folder: Path) -> dict[str, SourceFile]:
    """Put random objects, in parts as any large upload is."""
    sources = {}
    for number, size in enumerate(SIZES):
        key, file = f"object-{number}.bin", folder / "upload"
        with file.open("wb") as output:
            for _ in range(size // BLOCK):
                output.write(os.urandom(BLOCK))
        bucket.client.upload_file(str(file), bucket.name, key)
        etag = bucket.client.head_object(Bucket=bucket.name, Key=key)["ETag"]
        sources[key] = SourceFile(key, size, etag)
        file.unlink()
    return sources


def make_works(bench: Bench, engine: Callable[[Path], None]) -> dict[str, Callable[[Path], None]]:
    """What is run once a round, in this order."""
    return {
        "ours": engine,
        "boto3": boto3_transfer(bench, 1),
        "boto3, 3 files at once": boto3_transfer(bench, len(SIZES)),
        "obstore stream": obstore_stream(bench),
        "obstore ranges": obstore_ranges(bench),
        "s5cmd": s5cmd(bench),
        "rclone": rclone(bench),
        "s5cmd, then SHA-256": then_verified(s5cmd(bench)),
        "rclone, then SHA-256": then_verified(rclone(bench)),
        "to null, 2 streams": loopback_to_null(bench, 2),
        "to null, 4 streams": loopback_to_null(bench, 4),
        "disk write": disk_write,
    }


@contextmanager
def filled_bench() -> Iterator[Bench]:
    """A store of the run's own with the objects in it, and a folder; both go at the end."""
    Seaweed.reap()
    store = Seaweed.ephemeral()
    folder = Path(tempfile.mkdtemp(prefix="modelcache-bench-"))
    try:
        store.up(ephemeral=True)
        bucket = Bucket(store, "bench")
        yield Bench(bucket, fill(bucket, folder), folder)
    finally:
        store.down()
        shutil.rmtree(folder)


def measure() -> Figure:
    with filled_bench() as bench, started_engine(bench) as (runner, engine):
        works = make_works(bench, ours(bench, runner, engine))
        for name in ("to null, 2 streams", "ours"):
            bench.timed("warming", works[name])
        runs = {key: (lambda key=key: bench.timed(key, works[key])) for key in works}
        samples = interleave(runs, ROUNDS)
    # The best raw reader of each round is the wire's speed.
    wires = [samples.pop(f"to null, {streams} streams") for streams in (2, 4)]
    cpu = {who: statistics.median(bench.cpu[who]) for who in samples if who != "disk write"}
    spent = ", ".join(f"{who} {seconds:.2f}" for who, seconds in cpu.items())
    samples["loopback to null"] = [max(pair) for pair in zip(*wires, strict=True)]
    return make_figure(
        "s3-to-disk",
        "MiB/s",
        samples,
        ceilings=("loopback to null", "disk write"),
        notes=f"ours verifies (blake3, SHA-256), the peers where they say so. CPU s/GiB: {spent}",
    )
