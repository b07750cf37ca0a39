"""attach: what it takes a process to attach to a pod's volume and open its weights, in us.

Attaching is to connect to the agent, to read the volume's status and the file's header, and to map
the file; a full touch also reads one byte of each page of each tensor. Both by number of tensors,
from 10^2 to 10^6, and by size, from 0.1 to 4 GB, and both while the agent does nothing and while it
loads another model into locked memory again and again, from the disk and verified. The socket is
the agent's own, in a process without the rest of the agent. Beside it a bare echo: a connection to
the socket of a process that does nothing else, a message there and back.

The weights are in the page cache and are zeros, which the disk need not hold. "ours" is the attach
alone with 1000 tensors and 1 GB beside an idle agent.
"""

from __future__ import annotations

import itertools
import json
import mmap
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import attach_partners
from figure import Figure, make_figure, scaled, scaled_rounds
from first_touch import warm

import modelcache
from modelcache import Attachment, Weights

GB = 1000**3
ROUNDS = 3
ECHO = "bare echo"
MESSAGE = bytes(attach_partners.MESSAGE_BYTES)
ANSWER_SECONDS = 60
ANSWER_STEP_SECONDS = 0.0002
ONE_LOOK_SECONDS = 0.3
MOST_REPEATS = 200


@dataclass(frozen=True)
class Cell:
    tensors: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.tensors} tensors, {self.size_bytes / GB:g} GB"


FIRST = Cell(10**3, GB)
CELLS = (
    *(Cell(10**exponent, GB) for exponent in range(2, 7)),
    *(Cell(FIRST.tensors, size) for size in (GB // 10, 4 * GB)),
)


def write_weights(path: Path, cell: Cell) -> None:
    """Equal tensors of zeros, which take no room on the disk, in the page cache."""
    count = scaled(cell.tensors, 10)
    each = max(1, scaled(cell.size_bytes) // count)
    entries = (
        f'"t{n}":{{"dtype":"U8","shape":[{each}],"data_offsets":[{n * each},{n * each + each}]}}'
        for n in range(count)
    )
    header = ("{" + ",".join(entries) + "}").encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + count * each)
    warm(path)


def attach(volume: Path) -> tuple[Attachment, Weights]:
    attachment = modelcache.attach(root=volume, on_miss="raise")
    return attachment, attachment.version().safetensors()


def touch(volume: Path) -> tuple[Attachment, Weights]:
    attachment, weights = attach(volume)
    for name in weights:
        bytes(weights.raw(name)[:: mmap.PAGESIZE])
    return attachment, weights


def leave(attachment: Attachment, weights: Weights) -> None:
    """Once the agent has answered: an attach that falls back to the path is none of the figure."""
    until = time.monotonic() + ANSWER_SECONDS
    while not attachment.is_connected:
        if attachment.fallbacks or time.monotonic() > until:
            raise RuntimeError("the agent's socket cannot be had")
        time.sleep(ANSWER_STEP_SECONDS)
    weights.close()
    attachment.close()


def echo(address: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(str(address))
        line.sendall(MESSAGE)
        line.recv(len(MESSAGE))


def time_often(work: Callable[[], tuple[Attachment, Weights] | None]) -> float:
    """The median of as many as go into a moment, in microseconds."""
    found, until = [], time.monotonic() + ONE_LOOK_SECONDS
    while not found or (time.monotonic() < until and len(found) < MOST_REPEATS):
        began = time.perf_counter()
        opened = work()
        found.append((time.perf_counter() - began) * 1e6)
        if opened is not None:
            leave(*opened)
    return statistics.median(found)


def measure() -> Figure:
    samples: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="modelcache-bench-") as name:
        folder = Path(name)
        with helper("echo", folder) as _, helper("agent", folder) as agent:
            volume = Path(agent("volume"))
            for cell in CELLS:
                write_weights(volume / "model" / "model.safetensors", cell)
                ways = {
                    f"attach, {cell}": partial(attach, volume),
                    f"full touch, {cell}": partial(touch, volume),
                    ECHO: partial(echo, folder / "echo.sock"),
                }
                rounds = range(scaled_rounds(ROUNDS))
                for _, state in itertools.product(rounds, ("idle", "loading")):
                    agent(state)
                    for way, work in ways.items():
                        key = way if state == "idle" else f"{way}, loading"
                        samples.setdefault(key, []).append(time_often(work))
                agent("idle")
                print(f"  {cell}: {describe(samples, cell)}", flush=True)
    samples["ours"] = samples.pop(f"attach, {FIRST}")
    ratio = statistics.median(samples["ours"]) / statistics.median(samples[ECHO])
    return make_figure(
        "attach", "us", samples, notes=f"ours: attach, {FIRST}; {ratio:.1f} times a bare echo"
    )


def describe(samples: dict[str, list[float]], cell: Cell) -> str:
    parts = []
    for way in ("attach", "full touch"):
        idle, loading = samples[f"{way}, {cell}"], samples[f"{way}, {cell}, loading"]
        parts.append(f"{way} {statistics.median(idle):.0f}, {statistics.median(loading):.0f}")
    return "; ".join(parts) + " while loading"


@contextmanager
def helper(what: str, folder: Path) -> Iterator[Callable[[str], str]]:
    """A process beside this one that answers each line with a line."""
    command = [sys.executable, attach_partners.__file__, what, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(word: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                raise RuntimeError(f"{what} ended: its error is above")
            return str(json.loads(answer))

        ask("ready")
        yield ask
        process.stdin.close()
