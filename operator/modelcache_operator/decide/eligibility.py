"""Why a node may not hold a copy: chains of small checks that read like a specification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from modelcache_api.limits import MAX_ENTRIES_PER_NODE, MAX_LABELS_PER_NODE
from modelcache_api.names import TAINT_AGENT_NOT_READY, Priority, Reason, Tier
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.model_cache import Placement, Toleration, TolerationOperator
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.world import TaintView, Uid

_NO_SCHEDULE: Final = "NoSchedule"
_NO_EXECUTE: Final = "NoExecute"
# Put there by Kubernetes when a kubelet is away. Whether copies count is decided by the agent's
# own Lease, so these taints keep new copies off a node and take none away.
_ABSENCE_TAINTS: Final = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)
# It waits for the very copies that it would keep away.
_OWN_TAINTS: Final = frozenset({TAINT_AGENT_NOT_READY})
_CORDON_TAINT: Final = TaintView("node.kubernetes.io/unschedulable", "", _NO_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one node does not get a copy. `phrase` continues "1 node ..." and is counted by value.

    `tier` is the one that lacks the room, where it is room that lacks.
    """

    reason: Reason
    phrase: str
    tier: Tier = Tier.DISK


@dataclass(frozen=True, slots=True)
class Demand:
    """What a copy needs of a node."""

    version: Uid
    size_bytes: int
    placement: Placement
    tier: Tier = Tier.DISK
    priority: Priority = Priority.NORMAL


Check = Callable[[Demand, NodeBook], Refusal | None]


def refuse_to_keep(demand: Demand, book: NodeBook) -> Refusal | None:
    """Why a copy must leave a node where it was placed, or None.

    Softer than the checks for a new copy, as Kubernetes itself is with running pods: a cordon, a
    NoSchedule taint or a full disk takes nothing away.
    """
    return _first_refusal((_selector, _no_execute_taints, _never_fits), demand, book)


def refuse_tier(demand: Demand, book: NodeBook) -> Refusal | None:
    """Why a copy that is placed on a node cannot be held there in the wanted tier, or None.

    What was promised there stays promised.
    """
    room = book.faster.get(demand.tier)
    is_promised = room is not None and demand.version in room.wanted
    checks = (_tier, _never_fits_tier) if is_promised else _TIER_CHECKS
    return _first_refusal(checks, demand, book)


def refuse_match(demand: Demand, book: NodeBook) -> Refusal | None:
    """Why the node is not one of those that the placement means, or None."""
    return _first_refusal((_selector, _cordon, _taints, _node_not_ready, _tier), demand, book)


def refuse_new(demand: Demand, book: NodeBook) -> Refusal | None:
    """Why a new copy may not come to a node without displacing another, or None."""
    return refuse_match(demand, book) or _first_refusal(
        (
            _agent,
            _report,
            _disk_pressure,
            _never_fits,
            _never_fits_tier,
            _count,
            _room,
            _tier_room,
        ),
        demand,
        book,
    )


def refuse_displacing(demand: Demand, book: NodeBook) -> Refusal | None:
    """Why a new copy may not come to a node even if evictable copies give way, or None."""
    checks = (
        _agent,
        _report,
        _disk_pressure,
        _never_fits,
        _count,
        _room_after_eviction,
        *_TIER_CHECKS,
    )
    return refuse_match(demand, book) or _first_refusal(checks, demand, book)


def _first_refusal(checks: Sequence[Check], demand: Demand, book: NodeBook) -> Refusal | None:
    for check in checks:
        if (refusal := check(demand, book)) is not None:
            return refusal
    return None


def _selector(demand: Demand, book: NodeBook) -> Refusal | None:
    labels = book.node.labels
    for key, value in (demand.placement.node_selector or {}).items():
        if labels.get(key) != value:
            return Refusal(Reason.NO_ELIGIBLE_NODE, "not matching nodeSelector")
    return None


def _no_execute_taints(demand: Demand, book: NodeBook) -> Refusal | None:
    taints = (
        taint
        for taint in book.node.taints
        if taint.effect == _NO_EXECUTE and taint.key not in _ABSENCE_TAINTS | _OWN_TAINTS
    )
    return _refuse_taints(demand, taints)


def _taints(demand: Demand, book: NodeBook) -> Refusal | None:
    taints = (
        taint
        for taint in book.node.taints
        if taint.effect in {_NO_SCHEDULE, _NO_EXECUTE} and taint.key not in _OWN_TAINTS
    )
    return _refuse_taints(demand, taints)


def _refuse_taints(demand: Demand, taints: Iterable[TaintView]) -> Refusal | None:
    tolerations = demand.placement.tolerations or ()
    for taint in taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            value = f"={taint.value}" if taint.value else ""
            phrase = f"with the untolerated taint {taint.key}{value}:{taint.effect}"
            return Refusal(Reason.NO_ELIGIBLE_NODE, phrase)
    return None


def _cordon(demand: Demand, book: NodeBook) -> Refusal | None:
    # The taint follows spec.unschedulable with a delay: one answer for both.
    if not book.node.is_unschedulable:
        return None
    tolerations = demand.placement.tolerations or ()
    if any(tolerates(toleration, _CORDON_TAINT) for toleration in tolerations):
        return None
    return Refusal(Reason.NO_ELIGIBLE_NODE, "cordoned")


def _node_not_ready(_demand: Demand, book: NodeBook) -> Refusal | None:
    return None if book.node.is_ready else Refusal(Reason.NO_ELIGIBLE_NODE, "not Ready")


def _agent(_demand: Demand, book: NodeBook) -> Refusal | None:
    if book.liveness is Liveness.ABSENT:
        return Refusal(Reason.NO_AGENT, "without an agent")
    if book.liveness is not Liveness.ALIVE:
        return Refusal(Reason.NODE_LOST, "with a silent agent")
    return None


def _report(_demand: Demand, book: NodeBook) -> Refusal | None:
    if book.capacity_bytes is not None:
        return None
    return Refusal(Reason.WAITING, "whose agent has not reported its disk yet")


def _disk_pressure(demand: Demand, book: NodeBook) -> Refusal | None:
    if not book.has_disk_pressure or book.has_verified(demand.version):
        return None
    return Refusal(Reason.DISK_PRESSURE, "under disk pressure")


def _never_fits(demand: Demand, book: NodeBook) -> Refusal | None:
    if book.capacity_bytes is None or demand.size_bytes <= book.capacity_bytes:
        return None
    return Refusal(Reason.NEVER_FITS, "too small for it")


def _count(demand: Demand, book: NodeBook) -> Refusal | None:
    if book.caches >= MAX_ENTRIES_PER_NODE:
        return Refusal(Reason.TOO_MANY_MODELS, f"with {MAX_ENTRIES_PER_NODE} ModelCaches already")
    # Every placed version is labelled, so the labels run out before the entries do.
    if demand.version in book.wanted or len(book.wanted) < MAX_LABELS_PER_NODE:
        return None
    return Refusal(Reason.TOO_MANY_MODELS, f"with {MAX_LABELS_PER_NODE} models already")


def _room(demand: Demand, book: NodeBook) -> Refusal | None:
    if book.wants(demand.version) or book.free_bytes(demand.version) >= demand.size_bytes:
        return None
    return Refusal(Reason.INSUFFICIENT_SPACE, "without room")


def _room_after_eviction(demand: Demand, book: NodeBook) -> Refusal | None:
    if book.wants(demand.version) or _fits_on_disk(demand, book):
        return None
    return Refusal(Reason.INSUFFICIENT_SPACE, "without room")


def has_room_after_eviction(demand: Demand, book: NodeBook) -> bool:
    """True if the copy fits beside what others may not give up."""
    return _fits_on_disk(demand, book) and _fits_in_tier(demand, book, after_eviction=True)


def _fits_on_disk(demand: Demand, book: NodeBook) -> bool:
    given_up = book.evictable_bytes(demand.version, demand.priority)
    room = book.free_bytes(demand.version) + given_up
    return room >= demand.size_bytes


def _tier(demand: Demand, book: NodeBook) -> Refusal | None:
    is_known = book.capacity_bytes is not None
    if demand.tier is Tier.DISK or not is_known or demand.tier in book.faster:
        return None
    return Refusal(Reason.NO_ELIGIBLE_NODE, f"without a {demand.tier} tier", demand.tier)


def _never_fits_tier(demand: Demand, book: NodeBook) -> Refusal | None:
    room = book.faster.get(demand.tier)
    if room is None or demand.size_bytes <= room.capacity_bytes:
        return None
    return Refusal(Reason.NEVER_FITS, f"with a {demand.tier} tier too small for it", demand.tier)


def _tier_room(demand: Demand, book: NodeBook) -> Refusal | None:
    return _refuse_tier_room(demand, book, after_eviction=False)


def _tier_room_after_eviction(demand: Demand, book: NodeBook) -> Refusal | None:
    return _refuse_tier_room(demand, book, after_eviction=True)


def _refuse_tier_room(demand: Demand, book: NodeBook, *, after_eviction: bool) -> Refusal | None:
    room = book.faster.get(demand.tier)
    is_promised = room is not None and room.wants(demand.version)
    if is_promised or _fits_in_tier(demand, book, after_eviction=after_eviction):
        return None
    phrase = f"without room in the {demand.tier} tier"
    return Refusal(Reason.INSUFFICIENT_SPACE, phrase, demand.tier)


def _fits_in_tier(demand: Demand, book: NodeBook, *, after_eviction: bool) -> bool:
    room = book.faster.get(demand.tier)
    if room is None:
        return True
    others = book.giving_way(demand.version, demand.priority) if after_eviction else ()
    given_up = room.bytes_of(others)
    return room.free_bytes(demand.version) + given_up >= demand.size_bytes


_TIER_CHECKS: Final = (_tier, _never_fits_tier, _tier_room_after_eviction)


def tolerates(toleration: Toleration, taint: TaintView) -> bool:
    """True if the toleration covers the taint, by the rules for pods."""
    if toleration.effect is not None and toleration.effect.value != taint.effect:
        return False
    if toleration.key is None:
        return toleration.operator is TolerationOperator.EXISTS
    if toleration.key != taint.key:
        return False
    if toleration.operator is TolerationOperator.EXISTS:
        return True
    return (toleration.value or "") == taint.value


def describe_room(demand: Demand, books: Iterable[NodeBook], tier: Tier = Tier.DISK) -> str:
    """The arithmetic behind InsufficientSpace or NeverFits: of the roomiest node."""
    if tier is not Tier.DISK:
        return _describe_tier_room(demand, books, tier)
    known = [book for book in books if book.capacity_bytes is not None]
    if not known:
        return ""
    best = max(known, key=lambda book: (book.free_bytes(demand.version), book.name))
    return (
        f"needed {format_bytes(demand.size_bytes)}; the roomiest node {best.name} has "
        f"{format_bytes(max(0, best.free_bytes(demand.version)))} free, "
        f"{format_bytes(best.booked_bytes)} booked of {format_bytes(best.capacity_bytes or 0)}"
    )


def _describe_tier_room(demand: Demand, books: Iterable[NodeBook], tier: Tier) -> str:
    needed = f"needed {format_bytes(demand.size_bytes)} in tier {tier}"
    rooms = [(book.faster[tier], book.name) for book in books if tier in book.faster]
    if not rooms:
        return needed
    room, name = max(rooms, key=lambda one: (one[0].free_bytes(demand.version), one[1]))
    return (
        f"{needed}; the roomiest node {name} has "
        f"{format_bytes(max(0, room.free_bytes(demand.version)))} free there, "
        f"{format_bytes(room.booked_bytes)} booked of {format_bytes(room.capacity_bytes)}"
    )
