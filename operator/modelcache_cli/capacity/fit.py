"""What the operator would place where, and what it would refuse. Pure: its own code decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from modelcache_api.names import Reason, Tier
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.quota import UNLIMITED, Item, Limits
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheView,
    NodeName,
    NodeView,
    ObjectKey,
    Uid,
)


@dataclass(frozen=True, slots=True)
class SizedVersion:
    """A ModelVersion of known size."""

    key: ObjectKey
    uid: Uid
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node with its agent, real or only thought of."""

    node: NodeView
    cache_node: CacheNodeView | None
    liveness: Liveness


@dataclass(frozen=True, slots=True)
class PlannedWorld:
    """What would be in the cluster. Caches come in the order in which they are placed.

    `assigned` are the nodes where a ModelCache is held now, `canaries` those of its canary, and
    `predecessors` the versions that the change makes it hold for a while. `limits` are by
    namespace.
    """

    nodes: Sequence[PlannedNode]
    versions: Mapping[ObjectKey, SizedVersion]
    caches: Sequence[ModelCacheView]
    assigned: Mapping[ObjectKey, frozenset[NodeName]]
    canaries: Mapping[ObjectKey, frozenset[NodeName]] = field(default_factory=dict)
    predecessors: Mapping[ObjectKey, SizedVersion] = field(default_factory=dict)
    limits: Mapping[str, Limits] = field(default_factory=dict)
    default_limits: Limits = UNLIMITED

    def limits_of(self, namespace: str) -> Limits:
        """What is granted there."""
        return self.limits.get(namespace, self.default_limits)


@dataclass(frozen=True, slots=True)
class Refused:
    """Why something gets less than it wants."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Beside:
    """A version beside the stable one: bytes that come on top of it for as long as it is there."""

    version: ObjectKey
    size_bytes: int
    nodes: tuple[NodeName, ...]
    wanted: int
    refused: Refused | None = None

    @property
    def extra_bytes(self) -> int:
        """On the disks of all nodes together."""
        return self.wanted * self.size_bytes


@dataclass(frozen=True, slots=True)
class PlacedCache:
    """One ModelCache: its nodes, and why they are fewer than it wants (or None)."""

    key: ObjectKey
    version: ObjectKey
    size_bytes: int
    nodes: tuple[NodeName, ...]
    wanted: int
    tier: Tier = Tier.DISK
    refused: Refused | None = None
    canary: Beside | None = None
    held: Beside | None = None

    @property
    def refusals(self) -> Iterator[tuple[str, Refused]]:
        """What is refused, by what it is."""
        if self.refused is not None:
            yield str(self.key), self.refused
        if self.canary is not None and self.canary.refused is not None:
            yield f"{self.key}, canary {self.canary.version.name}", self.canary.refused

    @property
    def copies(self) -> Iterator[tuple[ObjectKey, int, int]]:
        """Versions with their sizes and the copies that are wanted or there."""
        if self.size_bytes:
            yield self.version, self.size_bytes, max(self.wanted, len(self.nodes))
        for beside in (self.canary, self.held):
            if beside is not None and beside.size_bytes:
                yield beside.version, beside.size_bytes, max(beside.wanted, len(beside.nodes))


@dataclass(frozen=True, slots=True)
class TierLoad:
    """One tier of a node once everything is placed. `capacity_bytes` is None without a report."""

    tier: Tier
    capacity_bytes: int | None
    booked_bytes: int

    @property
    def share(self) -> float:
        """Booked of capacity; 0 while the capacity is not known."""
        return self.booked_bytes / self.capacity_bytes if self.capacity_bytes else 0.0


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node: its tiers, the disk first, and the ModelCaches there."""

    name: NodeName
    tiers: tuple[TierLoad, ...]
    caches: int

    @property
    def disk(self) -> TierLoad:
        """The disk."""
        return self.tiers[0]

    def of(self, tier: Tier) -> TierLoad | None:
        """One tier, if the node has it."""
        return next((load for load in self.tiers if load.tier is tier), None)


@dataclass(frozen=True, slots=True)
class QuotaLoad:
    """What a namespace would be charged of what it is granted."""

    namespace: str
    item: Item
    used_bytes: int
    hard_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome."""

    caches: tuple[PlacedCache, ...]
    nodes: tuple[NodeLoad, ...]
    quotas: tuple[QuotaLoad, ...] = ()

    @property
    def refusals(self) -> tuple[tuple[str, Refused], ...]:
        """Everything that gets less than it wants."""
        return tuple(refusal for cache in self.caches for refusal in cache.refusals)

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Those that any node has, the disk first."""
        found = {load.tier for node in self.nodes for load in node.tiers}
        return tuple(tier for tier in Tier if tier in found)

    def crowded(self, headroom: float) -> tuple[tuple[NodeLoad, TierLoad], ...]:
        """Tiers of nodes without room for that share more than what is booked."""
        return tuple(
            (node, load)
            for node in self.nodes
            for load in node.tiers
            if load.share * (1 + headroom) > 1
        )
