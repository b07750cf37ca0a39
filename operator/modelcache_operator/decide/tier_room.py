"""What is promised in one tier above a node's disk, and what is left there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from modelcache_operator.decide.world import Uid


@dataclass(frozen=True, slots=True)
class TierRoom:
    """One tier of one node, in bytes.

    `wanted` are the versions that some ModelCache wants in this tier or a faster one, with 0 bytes
    for one that the agent has evicted.
    """

    capacity_bytes: int
    pending_release_bytes: int
    wanted: Mapping[Uid, int]

    @property
    def booked_bytes(self) -> int:
        """Bytes that are promised to versions."""
        return sum(self.wanted.values())

    def wants(self, version: Uid) -> bool:
        """True if some ModelCache wants the version here and it was not evicted."""
        return self.wanted.get(version, 0) > 0

    def free_bytes(self, version: Uid) -> int:
        """Room that is promised to nobody but this version. Negative if the tier shrank."""
        others = self.booked_bytes - self.wanted.get(version, 0)
        return self.capacity_bytes - self.pending_release_bytes - others

    def bytes_of(self, versions: Iterable[Uid]) -> int:
        """What these versions hold of it together."""
        return sum(self.wanted.get(uid, 0) for uid in versions)

    def booked_share(self) -> float:
        """Booked bytes as a share of the capacity, for spreading."""
        return self.booked_bytes / self.capacity_bytes
