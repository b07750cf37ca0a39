"""Storage and bandwidth that a plan needs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from modelcache_cli.capacity.fit import Fit

# One cold start reads the store once, writes the disk once and reads it once.
_STORE_READS: Final = 1
_DISK_ACCESSES: Final = 2


@dataclass(frozen=True, slots=True)
class Storage:
    """entries x mean size x redundancy x (1 + headroom), and what there is.

    `entries` are versions, `redundancy` the copies that each has on the average.
    """

    entries: int
    mean_size_bytes: int
    redundancy: float
    headroom: float
    capacity_bytes: int

    @property
    def needed_bytes(self) -> int:
        """The product."""
        copies = self.entries * self.mean_size_bytes * self.redundancy
        return round(copies * (1 + self.headroom))


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """peak concurrency x reads and writes per cold start x mean bytes, within some seconds."""

    peak: int
    mean_size_bytes: int
    seconds: float

    @property
    def store_bytes_per_second(self) -> float:
        """What the store must give if no peer has the bytes."""
        return self.peak * _STORE_READS * self.mean_size_bytes / self.seconds

    @property
    def disk_bytes_per_second(self) -> float:
        """What the disks of all nodes together must take and give."""
        return self.peak * _DISK_ACCESSES * self.mean_size_bytes / self.seconds


def find_storage(fit: Fit, headroom: float) -> Storage:
    """Of the disks, as wanted, whether or not it fits: a refused copy is counted, too.

    So are canaries, and versions that are held for a while.
    """
    found = [row for cache in fit.caches for row in cache.copies]
    entries = len({version for version, _, _ in found})
    copies = sum(count for _, _, count in found)
    weighted = sum(size * count for _, size, count in found)
    return Storage(
        entries=entries,
        mean_size_bytes=round(weighted / copies) if copies else 0,
        redundancy=copies / entries if entries else 0.0,
        headroom=headroom,
        capacity_bytes=sum(load.disk.capacity_bytes or 0 for load in fit.nodes),
    )


def find_bandwidth(fit: Fit, peak: int | None, seconds: float) -> Bandwidth:
    """Without a peak, all copies start at once."""
    storage = find_storage(fit, 0.0)
    copies = round(storage.entries * storage.redundancy)
    return Bandwidth(copies if peak is None else peak, storage.mean_size_bytes, seconds)
