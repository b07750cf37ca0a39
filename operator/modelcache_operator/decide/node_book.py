"""What is promised on one node, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modelcache_api.names import EntryState, Priority, Tier
from modelcache_api.v1alpha1.cache_node import EntryStatus
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.tier_room import TierRoom
from modelcache_operator.decide.world import CacheNodeView, NodeName, NodeView, Uid


@dataclass(frozen=True, slots=True)
class NodeBook:
    """One node as placement sees it.

    `wanted` are the bytes of each version that some ModelCache has placed here, 0 for one that
    the agent has evicted: it is not fetched again. `evictable` are those of them that the agent
    may give up for a newcomer, `caches` counts the ModelCaches behind them. `capacity_bytes` is
    None until the agent has reported its disk. `faster` are the tiers above the disk that the node
    has: those that its agent reports with a capacity. `pressure` is why its agent fetches nothing
    now. `priorities` are those of the versions, Normal without a word.
    """

    node: NodeView
    liveness: Liveness
    capacity_bytes: int | None
    pending_release_bytes: int
    wanted: Mapping[Uid, int]
    evictable: frozenset[Uid]
    reported: Mapping[Uid, EntryStatus]
    booked_bytes: int
    caches: int = 0
    faster: Mapping[Tier, TierRoom] = field(default_factory=dict)
    pressure: str | None = None
    priorities: Mapping[Uid, Priority] = field(default_factory=dict)

    @property
    def name(self) -> NodeName:
        """The node's name."""
        return self.node.name

    @property
    def has_disk_pressure(self) -> bool:
        """True if the kubelet or the agent finds the node's disk too full for anything new."""
        return self.node.has_disk_pressure or self.pressure is not None

    @property
    def has_live_agent(self) -> bool:
        """True if copies here count."""
        return self.liveness in {Liveness.ALIVE, Liveness.SILENT}

    def wants(self, version: Uid) -> bool:
        """True if some ModelCache has placed the version here and it was not evicted."""
        return self.wanted.get(version, 0) > 0

    def has_verified(self, version: Uid) -> bool:
        """True if the agent reports a verified copy."""
        entry = self.reported.get(version)
        return entry is not None and entry.state is EntryState.CACHED

    def has_verified_in(self, version: Uid, tier: Tier) -> bool:
        """True if the agent reports a verified copy in the tier or a faster one."""
        entry = self.reported.get(version)
        return entry is not None and is_held_in(entry, tier)

    def free_bytes(self, version: Uid) -> int:
        """Room that is promised to nobody but this version. Negative if the disk shrank."""
        others = self.booked_bytes - self.wanted.get(version, 0)
        return (self.capacity_bytes or 0) - self.pending_release_bytes - others

    def giving_way(self, version: Uid, priority: Priority) -> frozenset[Uid]:
        """Other versions that may be given up for this one: none of a higher priority."""
        return frozenset(
            uid
            for uid in self.evictable
            if uid != version and self.priorities.get(uid, Priority.NORMAL).rank <= priority.rank
        )

    def evictable_bytes(self, version: Uid, priority: Priority = Priority.NORMAL) -> int:
        """What others would give up for this version."""
        return sum(self.wanted[uid] for uid in self.giving_way(version, priority))

    def booked_share(self, tier: Tier = Tier.DISK) -> float:
        """Booked bytes as a share of the tier's capacity, for spreading."""
        if (room := self.faster.get(tier)) is not None:
            return room.booked_share()
        return self.booked_bytes / self.capacity_bytes if self.capacity_bytes else 1.0


def make_node_book(  # noqa: PLR0913 - one parameter for each column of the book
    node: NodeView,
    cache_node: CacheNodeView | None,
    liveness: Liveness,
    sizes: Mapping[Uid, int],
    *,
    tiers: Mapping[Uid, Tier] | None = None,
    priorities: Mapping[Uid, Priority] | None = None,
    caches: int = 0,
    yielding: frozenset[Uid] = frozenset(),
) -> NodeBook:
    """The book of a node on which that many ModelCaches have placed versions of these sizes.

    `tiers` says in which tier each is wanted; without a word it is the disk. `yielding` are
    versions that may be given up, though the node has perhaps not been told yet.
    """
    if cache_node is None or cache_node.spec.node_uid != node.uid:
        booked = sum(sizes.values())
        return NodeBook(node, liveness, None, 0, sizes, frozenset(), {}, booked, caches)
    disk = next((tier for tier in cache_node.status.tiers if tier.name is Tier.DISK), None)
    reported = {Uid(entry.uid): entry for entry in cache_node.status.entries}
    wanted = {uid: 0 if _is_evicted(reported, uid) else size for uid, size in sizes.items()}
    given_up = {Uid(entry.uid) for entry in cache_node.spec.entries if entry.evictable} | yielding
    return NodeBook(
        node=node,
        liveness=liveness,
        capacity_bytes=disk.capacity_bytes if disk else None,
        pending_release_bytes=disk.pending_release_bytes if disk else 0,
        wanted=wanted,
        evictable=frozenset(given_up & wanted.keys()),
        reported=reported,
        booked_bytes=sum(wanted.values()),
        caches=caches,
        faster={
            tier.name: TierRoom(
                tier.capacity_bytes,
                tier.pending_release_bytes,
                _wanted_in(tier.name, wanted, tiers or {}),
            )
            for tier in cache_node.status.tiers
            if tier.name is not Tier.DISK and tier.capacity_bytes
        },
        pressure=disk.pressure if disk else None,
        priorities=priorities or {},
    )


def is_held_in(entry: EntryStatus, tier: Tier) -> bool:
    """True if the agent holds verified bytes in the tier or a faster one."""
    if entry.state is not EntryState.CACHED:
        return False
    return (entry.tier or Tier.DISK).speed >= tier.speed


def _wanted_in(tier: Tier, wanted: Mapping[Uid, int], tiers: Mapping[Uid, Tier]) -> dict[Uid, int]:
    return {
        uid: size for uid, size in wanted.items() if tiers.get(uid, Tier.DISK).speed >= tier.speed
    }


def _is_evicted(reported: Mapping[Uid, EntryStatus], uid: Uid) -> bool:
    entry = reported.get(uid)
    return entry is not None and entry.state is EntryState.EVICTED
