"""resume: what the store serves in all when a client is killed at half of the bytes, over the size.

Each client is started, gets SIGKILL when the store has served half, and is started again in the
same folder until it is done; then every file is compared with its object. 1 would be: no byte
twice.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import boto3
import clients
import s3_to_disk
from botocore.config import Config
from bucket_hub import hub_environment, make_bucket_hub
from counting_door import CountingDoor
from figure import Figure, interleave, make_figure
from hub_to_disk import digests

from modelcache_testbed.ports import LOOPBACK

ROUNDS = 3
CLIENTS = ("ours", "rclone", "s5cmd", "boto3", "obstore", "huggingface_hub")
_DEADLINE_SECONDS = 300.0
_LOOK_SECONDS = 0.002


@dataclass(frozen=True)
class Room:
    """The door before the store, what lies behind it, and what clients are told."""

    door: CountingDoor
    files: Mapping[str, tuple[int, str]]
    environment: Mapping[str, str]
    folder: Path

    @property
    def size_bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


def measure() -> Figure:
    """All clients, one kill each a round."""
    with s3_to_disk.filled_bench() as bench:
        store, files = bench.bucket.store, digests(bench)
        port = int(store.endpoint.rpartition(":")[2])
        with CountingDoor((LOOPBACK, port)) as door:
            variables = {**store.environment(), "AWS_ENDPOINT_URL": door.endpoint}
            with make_bucket_hub(_client(variables), bench.bucket.name, files) as hub:
                environment = {
                    "PATH": os.environ["PATH"],
                    "BUCKET": bench.bucket.name,
                    **hub_environment(hub, bench.folder / "home"),
                    **variables,
                }
                return _measure(Room(door, files, environment, bench.folder))


def _client(variables: Mapping[str, str]) -> object:
    """Signs for the door."""
    return boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_REGION"],
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )


def _measure(room: Room) -> Figure:
    samples = interleave(
        {who: (lambda who=who: copies_served(room, who)) for who in CLIENTS}, ROUNDS
    )
    samples["once"] = [1.0] * ROUNDS
    return make_figure(
        "resume",
        "copies",
        samples,
        ceilings=("once",),
        notes="SIGKILL at half, then again to the end; every file compared with its object",
    )


def copies_served(room: Room, who: str) -> float:
    """Bytes that the store served over both runs, over the size."""
    target = Path(tempfile.mkdtemp(dir=room.folder))
    before = room.door.served
    try:
        _run_until(room, who, target, before + room.size_bytes // 2)
        clients.run(who, target, room.environment)
        served = room.door.served - before
        _check(room, target)
        return served / room.size_bytes
    finally:
        shutil.rmtree(target)


def _run_until(room: Room, who: str, target: Path, served: int) -> None:
    with subprocess.Popen(
        clients.command(who, target),
        env=room.environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as client:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while room.door.served < served:
            if client.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{who} did not come to half of the bytes")
            time.sleep(_LOOK_SECONDS)
        os.killpg(client.pid, signal.SIGKILL)


def _check(room: Room, target: Path) -> None:
    for key, (_, expected) in room.files.items():
        with (target / key).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise SystemExit(f"{key} was not resumed to the right bytes")
