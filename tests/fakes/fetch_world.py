"""What tests of the fetch engine need: grants, jobs, a quick configuration, bodies of any size."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import boto3
import botocore.config
from blake3 import blake3

from modelcache_agent.decide.transfer_plan import BackoffPolicy, StallPolicy
from modelcache_agent.fetch import FetchConfig, FetchFile, FetchJob
from modelcache_api.manifest import PIECE_BYTES, ContentFile, SourceFile
from modelcache_api.wire import GrantedFile

QUICK = FetchConfig(
    file_attempts=4,
    backoff=BackoffPolicy(base_seconds=0.005, cap_seconds=0.02),
    stall=StallPolicy(window_seconds=0.4, min_bytes_per_second=64 * 1024),
    skew_retry_seconds=0.01,
    connect_timeout_seconds=2,
    response_timeout_seconds=10,
    progress_seconds=0.02,
)


def quick(**changes: object) -> FetchConfig:
    return dataclasses.replace(QUICK, **changes)


class LeapingClock:
    """Pauses cost no time: a wait with a time-out moves the clock by it at once."""

    def __init__(self) -> None:
        self.leapt = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.leapt

    def now(self) -> float:
        return time.time() + self.leapt

    def jitter(self) -> float:
        return 0.5

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        if seconds is None:
            condition.wait()
        elif not condition.wait(0.001):
            self.leapt += seconds


async def until(reached: Callable[[], bool]) -> None:
    """Wait for something that only another thread can bring about."""
    while not reached():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


def random_body(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def safetensors_body(size: int, seed: int = 0) -> bytes:
    """A valid safetensors file of exactly `size` bytes with one tensor of random bytes."""
    for padding in range(200):
        data = size - 8 - 64 - padding
        header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (data, data)
        if len(header) <= 64 + padding:
            header = header.ljust(64 + padding)
            return struct.pack("<Q", len(header)) + header + random_body(data, seed)
    raise AssertionError("no such size")


def content_of(path: str, body: bytes) -> ContentFile:
    pieces = tuple(
        blake3(body[start : start + PIECE_BYTES]).hexdigest()
        for start in range(0, len(body), PIECE_BYTES)
    )
    return ContentFile(path, len(body), hashlib.sha256(body).hexdigest(), pieces)


class Grants:
    """A GrantProvider over a function that makes URLs; counts what it was asked."""

    def __init__(self, sources: dict[str, SourceFile], url_of: Callable[[str], str]) -> None:
        self.sources = sources
        self.url_of = url_of
        self.asked: Counter[str] = Counter()
        self.refreshed: Counter[str] = Counter()
        self.lifetime = 3600.0
        self.headers: dict[str, str] = {}

    async def current(self, uid: str, path: str) -> GrantedFile:
        self.asked[path] += 1
        return self._grant(path)

    async def refresh(self, uid: str, path: str) -> GrantedFile:
        self.refreshed[path] += 1
        return self._grant(path)

    def _grant(self, path: str) -> GrantedFile:
        source = self.sources[path]
        return GrantedFile(
            path=path,
            size_bytes=source.size_bytes,
            etag=source.etag,
            version_id=source.version_id,
            last_modified=source.last_modified,
            url=self.url_of(path),
            headers=self.headers,
            expires_at=time.time() + self.lifetime,
        )


def make_job(
    sources: dict[str, SourceFile],
    directory: Path,
    *,
    expected: dict[str, ContentFile] | None = None,
    uid: str = "uid-1",
    **changes: object,
) -> FetchJob:
    known = expected or {}
    files = tuple(FetchFile(source, known.get(path)) for path, source in sources.items())
    digest = "sha256:" + hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()
    return FetchJob(uid, digest, files, directory, **changes)


class S3World:
    """Objects below one prefix of a bucket, signed for any endpoint (the proxy's, say)."""

    def __init__(self, bucket: object, prefix: str, endpoint: str) -> None:
        self.bucket = bucket
        self.prefix = prefix
        store = bucket.store
        self._signer = boto3.session.Session(
            aws_access_key_id=store.access_key,
            aws_secret_access_key=store.secret_key,
            region_name=store.region,
        ).client(
            "s3",
            endpoint_url=endpoint,
            config=botocore.config.Config(
                signature_version="s3v4", s3={"addressing_style": "path"}
            ),
        )

    def put(self, path: str, body: bytes) -> SourceFile:
        etag = self.bucket.put(f"{self.prefix}/{path}", body)
        return SourceFile(path, len(body), etag)

    def url(self, path: str) -> str:
        return self._signer.generate_presigned_url(
            "get_object", {"Bucket": self.bucket.name, "Key": f"{self.prefix}/{path}"}, 3600
        )

    def grants(self, sources: dict[str, SourceFile]) -> Grants:
        return Grants(sources, self.url)


def plain_url(endpoint: str) -> Callable[[str], str]:
    """URLs of a plain web server."""
    return lambda path: f"{endpoint}/{quote(path)}"
