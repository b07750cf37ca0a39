"""first-touch: the first touch of each page of a file that is in the page cache, in ms a GiB.

Ours is the library's map, private and copy-on-write; beside it a plain shared map, and reading into
memory of one's own, as a reader does that does not map. Each is a process of its own, so that all
page tables are new; opening and the buffer's allocation are counted, start and imports are not.
Whether the page cache of the file system has folios larger than a page is told, because one fault
then maps many pages.
"""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from disk_to_host import make_model
from figure import Figure, interleave, make_figure, scaled, scaled_rounds

import modelcache
from modelcache_agent.tiers.host.facts import find_facts

MIB = 1 << 20
SIZE = 2048 * MIB
# One takes 15 ms: whatever else runs for a moment doubles it.
ROUNDS = 15
OURS = "ours"
HUGE = {True: "huge folios", False: "small folios", None: "folios of a size the kernel hides"}


def touch_library(path: Path) -> object:
    weights = modelcache.attach_folder(path.parent).version().safetensors()
    for name in weights:
        bytes(weights.raw(name)[:: mmap.PAGESIZE])
    return weights


def touch_map(path: Path) -> object:
    with path.open("rb") as file:
        found = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
    bytes(memoryview(found)[:: mmap.PAGESIZE])
    return found


def read(path: Path) -> object:
    """A map without a file is not touched when it is made, as a bytearray would be."""
    buffer, done = mmap.mmap(-1, path.stat().st_size), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(memoryview(buffer)[done:]):
            done += count
    return buffer


CONTENDERS: dict[str, Callable[[Path], object]] = {
    OURS: touch_library,
    "plain map": touch_map,
    "read() into a buffer": read,
}


def time_one(who: str, path: Path) -> None:
    """Body of the measured process."""
    began = time.monotonic()
    held = CONTENDERS[who](path)
    print(json.dumps(time.monotonic() - began))
    del held


def measure() -> Figure:
    with tempfile.TemporaryDirectory(prefix="modelcache-bench-") as name:
        path = make_model(Path(name), scaled(SIZE, MIB))
        folios = HUGE[find_facts(Path(name)).huge_folios]
        gibibytes = path.stat().st_size / 1024 / MIB
        warm(path)

        def run(who: str) -> float:
            command = [sys.executable, __file__, who, str(path)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            return float(json.loads(answer.stdout)) * 1000 / gibibytes

        contenders = {who: partial(run, who) for who in CONTENDERS}
        samples = interleave(contenders, scaled_rounds(ROUNDS))
    return make_figure(
        "first-touch", "ms/GiB", samples, notes=f"{gibibytes:.2f} GiB; the page cache has {folios}"
    )


def warm(path: Path) -> None:
    """All of it is in the page cache from now on."""
    buffer = bytearray(MIB)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


if __name__ == "__main__":
    time_one(sys.argv[1], Path(sys.argv[2]))
