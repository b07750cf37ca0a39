"""What a node should hold beyond what is placed there: what its own pods read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from modelcache_api.limits import MAX_ENTRIES_PER_NODE, MAX_LABELS_PER_NODE
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.world import ModelVersionView, ObjectKey, PodView, Uid

FindVersion = Callable[[ObjectKey], ModelVersionView | EntrySpec | None]


@dataclass(frozen=True, slots=True)
class DemandedCopy:
    """A ModelCache that a pod on the node reads though it is not placed there.

    A version that cannot be read is its own entry, as it stands.
    """

    cache: ObjectKey
    version: ModelVersionView | EntrySpec

    @property
    def uid(self) -> Uid:
        """The version's UID."""
        return Uid(self.version.uid)


def choose_demands(
    pods: Iterable[PodView],
    placed: AbstractSet[ObjectKey],
    find_version: FindVersion,
    book: NodeBook,
) -> tuple[DemandedCopy, ...]:
    """The copies to hold for the pods' lives, those of the oldest pods first.

    They take room that placement has not promised, and nothing else: where that does not do, the
    youngest go without. Before the agent has told its capacity nothing is known to fit, and under
    disk pressure nothing new comes.
    """
    free = (book.capacity_bytes or 0) - book.pending_release_bytes - book.booked_bytes
    held: set[Uid] = set(book.wanted)
    chosen: list[DemandedCopy] = []
    for cache in _wishes(pods, placed):
        if len(placed) + len(chosen) >= MAX_ENTRIES_PER_NODE:
            break
        version = find_version(cache)
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
        chosen.append(DemandedCopy(cache, version))
    return tuple(chosen)


def _size_of(version: ModelVersionView | EntrySpec) -> int | None:
    return version.size_bytes if isinstance(version, EntrySpec) else version.status.size_bytes


def _wishes(pods: Iterable[PodView], placed: AbstractSet[ObjectKey]) -> tuple[ObjectKey, ...]:
    living = sorted(
        (pod for pod in pods if not pod.is_over and pod.cache not in placed),
        key=lambda pod: (pod.created_at, pod.uid),
    )
    return tuple(dict.fromkeys(pod.cache for pod in living))
