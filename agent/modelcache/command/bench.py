"""How fast the attached weights are read: through the path, and through the library."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelcache.attachment import Version

_BUFFER_BYTES: Final = 16 << 20
_PAGE_BYTES: Final = 4096
_PATH: Final = "path: read()"


@dataclass(frozen=True, slots=True)
class Row:
    """The best of all rounds. `ratio`: how many times as fast as reading the path."""

    name: str
    seconds: float
    size_bytes: int
    ratio: float

    @property
    def gigabytes_per_second(self) -> float:
        """Bytes of the weights by time, in units of 10^9."""
        return self.size_bytes / self.seconds / 1e9

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.name,
            "seconds": self.seconds,
            "sizeBytes": self.size_bytes,
            "ofPath": self.ratio,
        }


def measure(version: Version, folder: str, files: Sequence[Path], rounds: int) -> list[Row]:
    """Rounds take turns, so that whatever else the machine does meets all of them."""
    size = sum(path.stat().st_size for path in files)
    names = [path.name for path in files]
    ways: dict[str, Callable[[], None]] = {
        _PATH: lambda: _read_path(files),
        "library: attach": lambda: _attach(version, folder, names),
        "library: touch every page": lambda: _touch(version, folder, names),
        "library: copy every byte": lambda: _copy(version, folder, names),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, work in ways.items():
            began = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - began)
    return [Row(name, seconds, size, best[_PATH] / seconds) for name, seconds in best.items()]


def _read_path(files: Sequence[Path]) -> None:
    """As an engine does that knows nothing of us."""
    buffer = bytearray(_BUFFER_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _attach(version: Version, folder: str, names: Sequence[str]) -> None:
    with version.safetensors(folder, files=names) as weights:
        for name in weights:
            weights.raw(name)


def _touch(version: Version, folder: str, names: Sequence[str]) -> None:
    with version.safetensors(folder, files=names) as weights:
        for name in weights:
            bytes(weights.raw(name)[::_PAGE_BYTES])


def _copy(version: Version, folder: str, names: Sequence[str]) -> None:
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with version.safetensors(folder, files=names) as weights:
        for name in weights:
            data = weights.raw(name)
            for begin in range(0, len(data), _BUFFER_BYTES):
                piece = data[begin : begin + _BUFFER_BYTES]
                buffer[: len(piece)] = piece
