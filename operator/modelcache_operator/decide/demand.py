"""What a node should hold beyond what is placed there: what its own pods read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from modelcache_api.limits import MAX_ENTRIES_PER_NODE, MAX_LABELS_PER_NODE
from modelcache_api.names import Priority, Tier, Track
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.world import ModelVersionView, ObjectKey, PodView, Uid

# A ModelCache and which of its versions.
Want = tuple[ObjectKey, Track]
FindVersion = Callable[[Want], ModelVersionView | EntrySpec | None]
FindTier = Callable[[ObjectKey], Tier]


@dataclass(frozen=True, slots=True)
class DemandedCopy:
    """A ModelCache that a pod on the node reads though it is not placed there.

    A version that cannot be read is its own entry, as it stands.
    """

    cache: ObjectKey
    version: ModelVersionView | EntrySpec
    track: Track = Track.STABLE
    tier: Tier = Tier.DISK
    priority: Priority = Priority.NORMAL
    is_over_quota: bool = False

    @property
    def uid(self) -> Uid:
        """The version's UID."""
        return Uid(self.version.uid)

    @property
    def want(self) -> Want:
        """What pods ask for."""
        return self.cache, self.track


def choose_demands(
    pods: Iterable[PodView],
    placed: AbstractSet[Want],
    find_version: FindVersion,
    find_tier: FindTier,
    book: NodeBook,
) -> tuple[DemandedCopy, ...]:
    """The copies to hold for the pods' lives, those of the oldest pods first.

    They take room that placement has not promised, and nothing else: where that does not do, the
    youngest go without. Before the agent has told its capacity nothing is known to fit, and under
    disk pressure nothing new comes. What has no room in the tier that its ModelCache wants is held
    on the disk.
    """
    free = (book.capacity_bytes or 0) - book.pending_release_bytes - book.booked_bytes
    held: set[Uid] = set(book.wanted)
    memory = _TierShelf(book)
    chosen: list[DemandedCopy] = []
    for want in _wishes(pods, placed):
        if len(placed) + len(chosen) >= MAX_ENTRIES_PER_NODE:
            break
        version = find_version(want)
        size = _size_of(version) if version is not None else None
        if version is None or size is None:
            continue
        uid = Uid(version.uid)
        if uid not in held:
            if book.has_disk_pressure and not book.has_verified(uid):
                continue
            if size > free or len(held) >= MAX_LABELS_PER_NODE:
                continue
            free -= size
            held.add(uid)
        cache, track = want
        tier = memory.take(uid, size, find_tier(cache))
        chosen.append(DemandedCopy(cache, version, track, tier))
    return tuple(chosen)


class _TierShelf:
    """Room above the disk that placement has not promised, as it is given away."""

    def __init__(self, book: NodeBook) -> None:
        self._held = {tier: set(room.wanted) for tier, room in book.faster.items()}
        self._free = {
            tier: room.capacity_bytes - room.pending_release_bytes - room.booked_bytes
            for tier, room in book.faster.items()
        }

    def take(self, uid: Uid, size_bytes: int, tier: Tier) -> Tier:
        """The tier if it has room for the version, else the disk."""
        held = self._held.get(tier)
        if held is None:
            return Tier.DISK
        if uid not in held:
            if size_bytes > self._free[tier]:
                return Tier.DISK
            self._free[tier] -= size_bytes
            held.add(uid)
        return tier


def _size_of(version: ModelVersionView | EntrySpec) -> int | None:
    return version.size_bytes if isinstance(version, EntrySpec) else version.status.size_bytes


def _wishes(pods: Iterable[PodView], placed: AbstractSet[Want]) -> tuple[Want, ...]:
    living = sorted(
        (pod for pod in pods if not pod.is_over and want_of(pod) not in placed),
        key=lambda pod: (pod.created_at, pod.uid),
    )
    return tuple(dict.fromkeys(map(want_of, living)))


def want_of(pod: PodView) -> Want:
    """What a pod asks for: the stable version unless its label says canary."""
    return pod.cache, Track.CANARY if pod.track == Track.CANARY else Track.STABLE
