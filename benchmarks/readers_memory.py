"""readers-memory: what the weights take in memory when eight processes read them, in model sizes.

Each process has its libraries loaded before it is looked at; then it loads all tensors, keeps and
touches them, and is looked at again while all others hold theirs. The figure is the growth of the
proportional set size (PSS), summed over the processes: shared pages count once, private and
anonymous ones for each. 1 is one copy for all. The weights are in the page cache before, as on a
node with the host tier. The contenders are our library, safetensors with torch on the path, Run:ai
Model Streamer and fastsafetensors (on the CPU). What grew as private or anonymous is told beside,
and, where a memory cgroup can be made, what the processes' cgroup was charged, which leaves out
what was cached before.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import memory_reader
from disk_to_host import is_installed, make_model
from figure import Figure, make_figure, scaled, scaled_rounds
from first_touch import warm
from memory_reader import CONTENDERS, KEYS, PEERS

from modelcache_testbed.memory_cgroup import MemoryCgroup, memory_cgroup

MIB = 1 << 20
SIZE = 1024 * MIB
READERS = 8
ROUNDS = 2


@dataclass(frozen=True)
class Growth:
    """Of all readers together, in bytes; `charged` by the cgroup, None without one."""

    pss: int
    private: int
    anonymous: int
    charged: int | None


class Readers:
    """Processes that do the same at once."""

    def __init__(self, who: str, path: Path, count: int, cgroup: MemoryCgroup | None) -> None:
        program = [sys.executable, memory_reader.__file__, who, str(path)]
        command = program if cgroup is None else cgroup.wrap(program)
        self._running = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]

    def tell(self, word: str) -> list[dict[str, int]]:
        for reader in self._running:
            assert reader.stdin is not None
            reader.stdin.write(f"{word}\n")
            reader.stdin.flush()
        return [self._answer(reader) for reader in self._running]

    def close(self) -> None:
        for reader in self._running:
            with reader:
                reader.kill()

    def _answer(self, reader: subprocess.Popen[str]) -> dict[str, int]:
        assert reader.stdout is not None
        line = reader.stdout.readline()
        while line and not line.startswith("{"):
            line = reader.stdout.readline()
        if not line:
            raise RuntimeError(f"a reader ended with {reader.wait()}: its error is above")
        found: dict[str, int] = json.loads(line)
        return found


def measure_one(who: str, path: Path, count: int) -> Growth:
    with own_cgroup() as cgroup:
        readers = Readers(who, path, count, cgroup)
        try:
            # The first look may itself take memory.
            readers.tell("look")
            before, charged = readers.tell("look"), charge(cgroup)
            readers.tell("load")
            after, then = readers.tell("look"), charge(cgroup)
        finally:
            readers.close()
    grown = {key: sum(b[key] - a[key] for a, b in zip(before, after, strict=True)) for key in KEYS}
    return Growth(
        pss=grown["Pss"],
        private=grown["Private_Clean"] + grown["Private_Dirty"],
        anonymous=grown["Anonymous"],
        charged=None if charged is None or then is None else then - charged,
    )


@contextlib.contextmanager
def own_cgroup() -> Iterator[MemoryCgroup | None]:
    """A memory cgroup below our own, if we may make one."""
    with contextlib.ExitStack() as stack:
        try:
            cgroup = stack.enter_context(memory_cgroup(name="bench"))
        except OSError:
            cgroup = None
        yield cgroup


def charge(cgroup: MemoryCgroup | None) -> int | None:
    return None if cgroup is None else cgroup.charged_bytes


def measure() -> Figure:
    missing = [who for who, module in PEERS.items() if not is_installed(module)]
    count = scaled(READERS, 2)
    growths: dict[str, list[Growth]] = {who: [] for who in CONTENDERS if who not in missing}
    with tempfile.TemporaryDirectory(prefix="modelcache-bench-") as name:
        path = make_model(Path(name), scaled(SIZE, MIB))
        size = path.stat().st_size
        warm(path)
        for number in range(scaled_rounds(ROUNDS)):
            for who, found in growths.items():
                found.append(measure_one(who, path, count))
                shown = describe(found[-1], size)
                print(f"  round {number + 1}  {who:<24} {shown}", flush=True)
    absent = f"; not installed: {', '.join(missing)}" if missing else ""
    last = "; ".join(f"{who}: {describe(found[-1], size)}" for who, found in growths.items())
    return make_figure(
        "readers-memory",
        "models",
        {who: [growth.pss / size for growth in found] for who, found in growths.items()},
        notes=f"{count} readers of {size / MIB:.0f} MiB; {last}{absent}",
    )


def describe(growth: Growth, size: int) -> str:
    words = {"PSS": growth.pss, "private": growth.private, "anonymous": growth.anonymous}
    if growth.charged is not None:
        words["charged"] = growth.charged
    return ", ".join(f"{word} {count / size:.2f}" for word, count in words.items())
