"""An agent's input log (docs/inputs.md) as a source of arrivals, sizes and requests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from modelcache_agent.inputs.records import Happening, LogError, Record, read_records
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.trace import Request

SUFFIX: Final = ".jsonl"
"""What the names of input logs end in; traces are CSV."""


class Arrival(NamedTuple):
    """A pod asked for a content at a time (Unix seconds), and waited until it was shown it."""

    at: float
    digest: str
    size_bytes: int
    waited_seconds: float

    @property
    def shown_at(self) -> float:
        """When the pod had it."""
        return self.at + self.waited_seconds


def read_log(path: Path) -> tuple[Record, ...]:
    """All records of one file.

    Raises:
        SimulationError: it cannot be read; the sentence names it and the cure.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return tuple(read_records(file))
    except OSError as error:
        raise SimulationError(f"cannot read the log {path}: {error.strerror}") from error
    except LogError as error:
        raise SimulationError(f"{path}: {error}") from error


def list_arrivals(records: Iterable[Record]) -> tuple[Arrival, ...]:
    """Arrivals by time. One whose size is not told is none that can be played."""
    found = (
        Arrival(one.at - one.waited_seconds, one.digest, one.size_bytes, one.waited_seconds)
        for one in records
        if isinstance(one, Happening) and one.kind == "attach" and one.size_bytes is not None
    )
    return tuple(sorted(found))


def list_releases(records: Iterable[Record]) -> tuple[tuple[float, str], ...]:
    """When no volume showed a content any more, and which."""
    return tuple(
        (one.at, one.digest)
        for one in records
        if isinstance(one, Happening) and one.kind == "release"
    )


def find_log_sizes(records: Iterable[Record]) -> Mapping[str, int]:
    """Bytes by digest of all that was attached."""
    return {one.digest: one.size_bytes for one in list_arrivals(records)}


def list_requests(records: Sequence[Record]) -> Iterator[Request]:
    """A request for each arrival, which lasts until its content is shown by no volume any more."""
    ends: dict[str, list[float]] = {}
    for at, digest in list_releases(records):
        ends.setdefault(digest, []).append(at)
    arrivals = list_arrivals(records)
    last = max(chain((one.shown_at for one in arrivals), *ends.values()), default=0.0)
    for one in arrivals:
        known = ends.get(one.digest, [])
        place = bisect_left(known, one.shown_at)
        yield Request(one.at, one.digest, (known[place] if place < len(known) else last) - one.at)
