"""disk-to-host: a safetensors file from this machine's disk into memory, in MiB/s.

Each contender reads the same file in a process of its own, with nothing of it cached before. Ours
populates and locks the page cache that all later readers map; with and without comparing each piece
with its blake3. The others fill memory of their own process, for that process alone, and compare
nothing: safetensors' load_file, Run:ai Model Streamer and fastsafetensors (on the CPU). The ceiling
reads with O_DIRECT into buffers that it throws away. CPU is user and system time of the process
while it loads, in seconds a GiB.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from blake3 import blake3
from figure import Figure, interleave, make_figure
from safetensors.numpy import load_file, save_file

from modelcache_agent.tiers.host.loading import LOAD_THREADS, LoadFile
from modelcache_agent.tiers.host.pages import count_resident_bytes, drop_cached
from modelcache_agent.tiers.host.record import LockRecord
from modelcache_agent.tiers.host.tier import HostTier
from modelcache_api.manifest import PIECE_BYTES

MIB = 1 << 20
SIZE = 2048 * MIB
TENSORS = 32
ROUNDS = 5
OURS = "ours"
PLAIN = "ours, unverified"
PEERS = {
    "Run:ai streamer": "runai_model_streamer",
    "fastsafetensors": "fastsafetensors",
}


def make_model(folder: Path, size_bytes: int) -> Path:
    """A file of random tensors, on the device and out of the page cache."""
    path = folder / "model.safetensors"
    length = size_bytes // TENSORS
    generator = np.random.default_rng(1)
    tensors = {
        f"layer.{number}": generator.integers(0, 256, length, dtype=np.uint8)
        for number in range(TENSORS)
    }
    save_file(tensors, path)
    return path


def describe_file(path: Path) -> LoadFile:
    """With the hashes that its record would have."""
    whole, pieces = hashlib.sha256(), []
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            whole.update(piece)
            pieces.append(blake3(piece).hexdigest())
    size = path.stat().st_size
    return LoadFile(path.name, path, size, whole.hexdigest(), tuple(pieces))


def forget(path: Path) -> None:
    """Nothing of the file is cached from now on."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        drop_cached(fd)
        if count_resident_bytes(fd):
            raise RuntimeError("something holds pages of the file: the figure would be wrong")
    finally:
        os.close(fd)


def lock(path: Path, *, verifies: bool) -> Callable[[], object]:
    known = json.loads(path.with_suffix(".json").read_text())
    file = LoadFile(path.name, path, known["size_bytes"], known["sha256"], tuple(known["pieces"]))
    tier = HostTier(2 * file.size_bytes, LockRecord(path.with_suffix(".locks")))
    if not verifies:
        # As what a download has just verified.
        tier.note_written([file.blob])
    return lambda: tier.load("one", [file], lambda: False)


def read_plain(path: Path) -> Callable[[], object]:
    return lambda: load_file(path)


def stream(path: Path) -> Callable[[], object]:
    importlib.import_module("torch")
    streamer = importlib.import_module("runai_model_streamer").SafetensorsStreamer

    def run() -> int:
        with streamer() as opened:
            opened.stream_file(str(path))
            return sum(tensor.nbytes for _, tensor in opened.get_tensors())

    return run


def read_fast(path: Path) -> Callable[[], object]:
    importlib.import_module("torch")
    library = importlib.import_module("fastsafetensors")

    def run() -> int:
        loader = library.SafeTensorsFileLoader(library.SingleGroup(), device="cpu", nogds=True)
        loader.add_filenames({0: [str(path)]})
        copied = loader.copy_files_to_device()
        return sum(copied.get_tensor(name).nbytes for name in loader.get_keys())

    return run


def read_direct(path: Path) -> Callable[[], object]:
    """Blocks of a piece, by as many threads as ours; the unaligned rest is left out."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    size = path.stat().st_size // mmap.PAGESIZE * mmap.PAGESIZE

    def read(number: int) -> None:
        buffer = mmap.mmap(-1, PIECE_BYTES)
        for offset in range(number * PIECE_BYTES, size, LOAD_THREADS * PIECE_BYTES):
            os.preadv(fd, [buffer], offset)

    def run() -> None:
        with ThreadPoolExecutor(LOAD_THREADS) as pool:
            list(pool.map(read, range(LOAD_THREADS)))

    return run


CONTENDERS: dict[str, Callable[[Path], Callable[[], object]]] = {
    OURS: partial(lock, verifies=True),
    PLAIN: partial(lock, verifies=False),
    "safetensors load_file": read_plain,
    "Run:ai streamer": stream,
    "fastsafetensors": read_fast,
    "O_DIRECT": read_direct,
}


def time_one(who: str, path: Path) -> None:
    """Body of the measured process; imports and preparation are not counted."""
    run = CONTENDERS[who](path)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    result = run()
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    del result
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu": cpu}))


def measure() -> Figure:
    missing = [who for who, module in PEERS.items() if not is_installed(module)]
    cpu: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="modelcache-bench-") as name:
        path = make_model(Path(name), SIZE)
        file, total = describe_file(path), path.stat().st_size
        known = {
            "size_bytes": total,
            "sha256": file.sha256,
            "pieces": file.pieces,
        }
        path.with_suffix(".json").write_text(json.dumps(known))

        def run(who: str) -> float:
            forget(path)
            command = [sys.executable, __file__, who, str(path)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(answer.stdout.splitlines()[-1])
            cpu.setdefault(who, []).append(found["cpu"] / (total / 1024 / MIB))
            return total / MIB / found["seconds"]

        contenders = {who: partial(run, who) for who in CONTENDERS if who not in missing}
        samples = interleave(contenders, ROUNDS)
    spent = ", ".join(f"{who} {statistics.median(each):.2f}" for who, each in cpu.items())
    absent = f"; not installed: {', '.join(missing)}" if missing else ""
    return make_figure(
        "disk-to-host",
        "MiB/s",
        samples,
        ceilings=["O_DIRECT"],
        notes=f"CPU seconds a GiB: {spent}{absent}",
    )


def is_installed(module: str) -> bool:
    """False too where it cannot be imported on this machine."""
    probe = [sys.executable, "-c", f"import {module}"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


if __name__ == "__main__":
    time_one(sys.argv[1], Path(sys.argv[2]))
