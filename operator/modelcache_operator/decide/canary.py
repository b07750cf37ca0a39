"""On which nodes a canary is held beside the stable version. Extra bytes first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from modelcache_api.limits import MAX_LABELS_PER_NODE
from modelcache_api.names import EntryState, Reason, Tier
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.model_cache import ModelCacheSpec
from modelcache_api.v1alpha1.rollout import Residency
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.placement import Books, tie_break
from modelcache_operator.decide.rollout import DEFAULT_ROLLOUT, CanaryCopies, Trouble, next_weight
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.world import NodeName, Uid

_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class CanaryPlan:
    """Where the canary belongs, and what its copies there look like."""

    nodes: frozenset[NodeName]
    copies: CanaryCopies


@dataclass(frozen=True, slots=True)
class CanaryWish:
    """A canary, beside which stable version, and at which weight it is now.

    `present` are the nodes that were chosen for it before. `slower` are those of `stable` that hold
    everything on their disks alone.
    """

    cache: Uid
    spec: ModelCacheSpec
    version: Uid
    size_bytes: int
    stable_version: Uid
    stable: frozenset[NodeName]
    slower: frozenset[NodeName] = frozenset()
    present: frozenset[NodeName] = frozenset()
    weight: int = 0
    has_ended: bool = False


def place_canary(wish: CanaryWish, books: Books) -> CanaryPlan:
    """The nodes, of those of the stable version: all of them, or as many as the weight asks for.

    `present` are those that were chosen before: they stay, in as far as they are wanted. Unless
    all others have room, none of them is chosen, so that not a byte is read for a canary that
    cannot be whole. A copy that was given up leaves, and may come anew in another round; once the
    rollout has ended no copy comes any more.
    """
    live = frozenset(name for name in wish.stable if books[name].has_live_agent)
    usable = frozenset(name for name in live if not _is_evicted(wish.version, books[name]))
    if wish.has_ended:
        usable &= wish.present
    wanted = _choose(wish, usable, books)
    kept = wanted & wish.present
    lacking = {name: _find_lack(wish, books[name]) for name in wanted - kept}
    short = {name: tier for name, tier in lacking.items() if tier is not None}
    shortage = _describe_shortage(wish, short, len(wanted), books) if short else None
    if shortage is None:
        shortage = _find_pressure(wish, wanted - kept, books)
    lost = (wish.present & wish.stable) - live
    nodes = (wanted if shortage is None else kept) | lost
    copies = CanaryCopies(
        wanted=len(wanted) if wish.has_ended else _count(wish, len(live)),
        ready=sum(books[name].has_verified(wish.version) for name in nodes - lost),
        size_bytes=wish.size_bytes,
        shortage=shortage,
        trouble=_find_trouble(wish.version, nodes - lost, books),
    )
    return CanaryPlan(nodes, copies)


def _count(wish: CanaryWish, live: int) -> int:
    """Copies that are wanted, of the nodes that there are."""
    policy, copies = wish.spec.rollout or DEFAULT_ROLLOUT, wish.spec.placement.copies
    if policy.residency is Residency.FULL:
        return live
    share = max(wish.weight, next_weight(wish.spec, wish.weight))
    of = copies if isinstance(copies, int) else live
    return min(live, max(1, -(-share * of // _PERCENT)))


def _choose(wish: CanaryWish, live: frozenset[NodeName], books: Books) -> frozenset[NodeName]:
    """Verified copies first, then those on their way, then where it can come, in a stable order."""

    def worth(name: NodeName) -> tuple[bool, bool, bool, str]:
        book, is_new = books[name], name not in wish.present
        is_verified = not is_new and book.has_verified(wish.version)
        cannot = is_new and (_find_lack(wish, book) is not None or _is_pressed(wish, book))
        return not is_verified, is_new, cannot, tie_break(wish.cache, name)

    return frozenset(sorted(live, key=worth)[: _count(wish, len(live))])


def _is_evicted(version: Uid, book: NodeBook) -> bool:
    entry = book.reported.get(version)
    return entry is not None and entry.state is EntryState.EVICTED


def _find_lack(wish: CanaryWish, book: NodeBook) -> Tier | None:
    """The tier that has no room for the canary on that node, the disk first.

    What others may give up counts, what the stable version holds does not.
    """
    if not _has_room_on_disk(wish, book):
        return Tier.DISK
    tier = Tier.DISK if book.name in wish.slower else wish.spec.tier
    room = book.faster.get(tier)
    if room is None or room.wants(wish.version):
        return None
    given_up = room.bytes_of(_giving_way(wish, book))
    return None if room.free_bytes(wish.version) + given_up >= wish.size_bytes else tier


def _has_room_on_disk(wish: CanaryWish, book: NodeBook) -> bool:
    version = wish.version
    if book.wants(version) or book.has_verified(version):
        return True
    if book.capacity_bytes is None or len(book.wanted) >= MAX_LABELS_PER_NODE:
        return False
    given_up = sum(book.wanted[uid] for uid in _giving_way(wish, book))
    return book.free_bytes(version) + given_up >= wish.size_bytes


def _giving_way(wish: CanaryWish, book: NodeBook) -> frozenset[Uid]:
    """Who may be given up for the canary: none of a higher priority, and never stable's copies."""
    return book.giving_way(wish.version, wish.spec.priority) - {wish.stable_version}


def _find_pressure(wish: CanaryWish, nodes: Iterable[NodeName], books: Books) -> Shortage | None:
    """Why it cannot be whole though it has room."""
    pressed = [name for name in sorted(nodes) if _is_pressed(wish, books[name])]
    if not pressed:
        return None
    message = (
        f"{len(pressed)} of the nodes of the stable version are under disk pressure, first "
        f"{pressed[0]}: nothing new is fetched there, so the canary is fetched nowhere. "
        "Free space on them, or set rollout.residency to Proportional"
    )
    return Shortage(Reason.DISK_PRESSURE, message)


def _is_pressed(wish: CanaryWish, book: NodeBook) -> bool:
    """Agents fetch nothing new under disk pressure, however much room is promised to nobody."""
    return book.has_disk_pressure and not book.has_verified(wish.version)


def describe_standstill(placed: int, wanted: int, tier: Tier) -> Shortage:
    """Why copies are missing that nodes could hold."""
    place = "a node" if tier is Tier.DISK else f"a node in tier {tier}"
    message = (
        f"{placed} of {wanted} copies have {place}; a rollout is under way, and other nodes are "
        "taken only below minReady: promote or remove the canary"
    )
    return Shortage(Reason.ROLLOUT_UNDER_WAY, message)


def _describe_shortage(
    wish: CanaryWish, short: Mapping[NodeName, Tier], wanted: int, books: Books
) -> Shortage:
    """The arithmetic of the fullest node, in the slowest tier that lacks room anywhere."""
    tier = min(short.values(), key=lambda one: one.speed)
    names = sorted(name for name, lacking in short.items() if lacking is tier)
    rooms = {name: _room_in(tier, wish.version, books[name]) for name in names}
    worst = min(names, key=lambda name: (rooms[name].free_bytes, name))
    room = rooms[worst]
    where = "" if tier is Tier.DISK else f" in tier {tier}"
    cure = "free space" if tier is Tier.DISK else f"free the {tier} tier, lower spec.tier"
    message = (
        f"the canary needs {format_bytes(wish.size_bytes)} beside the stable version{where} on "
        f"each of {wanted} nodes, {format_bytes(wanted * wish.size_bytes)} in all; {len(names)} of "
        f"them lack room, the fullest is {worst}: {format_bytes(max(0, room.free_bytes))} free, "
        f"{format_bytes(room.booked_bytes)} booked of {format_bytes(room.capacity_bytes)}. "
        f"Stable is not touched: {cure}, or set rollout.residency to Proportional"
    )
    return Shortage(Reason.CANARY_DOES_NOT_FIT, message)


@dataclass(frozen=True, slots=True)
class _Room:
    free_bytes: int
    booked_bytes: int
    capacity_bytes: int


def _room_in(tier: Tier, version: Uid, book: NodeBook) -> _Room:
    room = book.faster.get(tier)
    if room is not None:
        return _Room(room.free_bytes(version), room.booked_bytes, room.capacity_bytes)
    return _Room(book.free_bytes(version), book.booked_bytes, book.capacity_bytes or 0)


def _find_trouble(version: Uid, nodes: Iterable[NodeName], books: Books) -> Trouble | None:
    """Why copies have failed: the most frequent reason, and the first node's sentence."""
    entries = {name: books[name].reported.get(version) for name in sorted(nodes)}
    failed = {
        name: entry
        for name, entry in entries.items()
        if entry is not None and entry.state is EntryState.FAILED
    }
    if not failed:
        return None
    known = {reason.value for reason in Reason}
    counted = Counter(entry.reason for entry in failed.values() if entry.reason in known)
    word = min(counted, key=lambda one: (-counted[one], one)) if counted else None
    name, first = next(iter(failed.items()))
    reason = Reason(word) if word is not None else Reason.TRANSFER_FAILED
    message = f"{len(failed)} copies of the canary failed, first on node {name}: {first.message}"
    return Trouble(reason, message)
