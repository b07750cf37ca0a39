"""On which nodes one ModelCache is held. Sticky: nothing moves unless something forces it to."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from modelcache_operator.decide.eligibility import (
    Demand,
    Refusal,
    refuse_displacing,
    refuse_match,
    refuse_new,
    refuse_tier,
    refuse_to_keep,
)
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.shortage import Shortage, describe_shortage
from modelcache_operator.decide.world import NodeName, Uid

ALL_COPIES: Final = "All"
_ZONE_LABEL: Final = "topology.kubernetes.io/zone"

Books = Mapping[NodeName, NodeBook]
# (displaces, was left, brings bytes, booked share, hash): smaller is better.
_Rank = tuple[bool, bool, bool, float, str]


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Where the copies belong.

    `nodes` are all that shall carry an entry, `live` those of them that count. The others are
    lost: they keep their entry, so that a node that comes back does so with its bytes.
    `left` are nodes from which a copy moves away, because it got no further there. `slower` are
    those of `nodes` that cannot hold it in the wanted tier.
    """

    nodes: frozenset[NodeName]
    live: frozenset[NodeName]
    wanted: int
    shortage: Shortage | None = None
    left: frozenset[NodeName] = frozenset()
    slower: frozenset[NodeName] = frozenset()


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong where: `movable` copies get no further, at `left` nodes they never did."""

    movable: frozenset[NodeName] = frozenset()
    left: frozenset[NodeName] = frozenset()


def place(
    cache: Uid,
    demand: Demand,
    assigned: Iterable[NodeName],
    books: Books,
    trouble: Trouble = Trouble(),
    *,
    is_still: bool = False,
) -> PlacementPlan:
    """The nodes of one ModelCache, given where it is now and what is promised on each node.

    A movable copy stays until a node is found that has room without displacing anybody, and never
    goes back to where it was: so it moves at most once for each node.

    A copy whose node cannot hold it in the wanted tier stays on that disk until as many others are
    verified as are wanted: a wish for a faster tier never costs a copy.

    While it `is_still`, new nodes come only below `minReady`, in whichever tier the copies are; for
    what is missing above it no shortage is told.
    """
    kept = _keep(demand, assigned, books)
    alive = frozenset(name for name in kept if books[name].has_live_agent)
    slower = frozenset(name for name in kept if refuse_tier(demand, books[name]) is not None)
    lost, live = kept - alive, alive - slower
    wanted = _count_wanted(demand, live, books)
    live = _trim(cache, demand, live, wanted, books, trouble.movable)
    movable = live & trouble.movable if demand.placement.copies != ALL_COPIES else frozenset()
    if len(live) == wanted and demand.placement.copies != ALL_COPIES and not movable:
        stay = _stand_in(cache, demand, alive & slower, live, wanted, books)
        nodes = live | lost | stay
        return PlacementPlan(nodes, live | stay, wanted, slower=slower & nodes)
    count = wanted - len(live)
    if is_still:
        count = min(count, max(0, demand.placement.min_ready - len(alive)))
    picks, refusals = frozenset[NodeName](), dict[NodeName, Refusal]()
    if count > 0 or not wanted:
        picks, refusals = _pick(cache, demand, count, kept, books, trouble.left)
    live |= picks
    moved = _choose_moves(cache, demand, movable, kept | picks, books, trouble.left)
    live = (live - frozenset(moved)) | frozenset(moved.values())
    shortage = None
    if len(picks) < count or not wanted:
        unfit = {name: refuse_tier(demand, books[name]) for name in sorted(slower)}
        refusals |= {name: refusal for name, refusal in unfit.items() if refusal is not None}
        shortage = describe_shortage(demand, len(live), wanted, refusals, books)
    stay = _stand_in(cache, demand, alive & slower, live, wanted, books)
    nodes = live | lost | stay
    return PlacementPlan(
        nodes, live | stay, wanted, shortage, frozenset(moved), slower=slower & nodes
    )


def _stand_in(
    cache: Uid,
    demand: Demand,
    slower: frozenset[NodeName],
    live: frozenset[NodeName],
    wanted: int,
    books: Books,
) -> frozenset[NodeName]:
    """Which copies on nodes without the tier stay: verified ones for those that are not yet."""
    verified = {name for name in slower if books[name].has_verified(demand.version)}
    ready = sum(books[name].has_verified(demand.version) for name in live)
    stay = sorted(verified, key=lambda name: tie_break(cache, name))[: max(0, wanted - ready)]
    others = sorted(slower - verified, key=lambda name: tie_break(cache, name))
    return frozenset(stay + others[: max(0, wanted - len(live) - len(stay))])


def _choose_moves(
    cache: Uid,
    demand: Demand,
    movable: frozenset[NodeName],
    taken: frozenset[NodeName],
    books: Books,
    left: frozenset[NodeName],
) -> dict[NodeName, NodeName]:
    """Where each movable copy goes, if there is room for it."""
    if not movable:
        return {}
    free = {
        name: book
        for name, book in books.items()
        if name in taken or (name not in left and refuse_new(demand, book) is None)
    }
    picks, _ = _pick(cache, demand, len(movable), taken, free, left)
    order = sorted(movable, key=lambda name: tie_break(cache, name))
    return dict(zip(order, sorted(picks), strict=False))


def _keep(demand: Demand, assigned: Iterable[NodeName], books: Books) -> frozenset[NodeName]:
    return frozenset(
        name for name in assigned if name in books and refuse_to_keep(demand, books[name]) is None
    )


def _count_wanted(demand: Demand, live: frozenset[NodeName], books: Books) -> int:
    copies = demand.placement.copies
    if isinstance(copies, int):
        return copies
    matching = {
        name
        for name, book in books.items()
        if book.has_live_agent and refuse_match(demand, book) is None
    }
    return len(matching | live)


def _trim(
    cache: Uid,
    demand: Demand,
    live: frozenset[NodeName],
    wanted: int,
    books: Books,
    movable: frozenset[NodeName],
) -> frozenset[NodeName]:
    """The copies worth keeping if there are too many: verified first, then the furthest."""
    if len(live) <= wanted:
        return live

    def worth(name: NodeName) -> tuple[bool, bool, int, str]:
        book = books[name]
        entry = book.reported.get(demand.version)
        progress = entry.progress_percent if entry else 0
        is_verified = book.has_verified(demand.version)
        return (not is_verified, name in movable, -progress, tie_break(cache, name))

    return frozenset(sorted(live, key=worth)[:wanted])


def _pick(
    cache: Uid,
    demand: Demand,
    count: int,
    taken: frozenset[NodeName],
    books: Books,
    left: frozenset[NodeName],
) -> tuple[frozenset[NodeName], dict[NodeName, Refusal]]:
    """New nodes, spread over zones and by booked share, and why the others are none."""
    refusals: dict[NodeName, Refusal] = {}
    per_zone: dict[str, list[tuple[_Rank, NodeName]]] = {}
    zones = Counter(_zone(books[name]) for name in taken if books[name].has_live_agent)
    for name, book in books.items():
        if name in taken:
            continue
        refusal, displaces = refuse_match(demand, book), False
        if refusal is None and (displaces := refuse_new(demand, book) is not None):
            refusal = refuse_displacing(demand, book)
        if refusal is not None:
            refusals[name] = refusal
            continue
        brings_bytes = not (book.wants(demand.version) or book.has_verified(demand.version))
        share, tie = book.booked_share(demand.tier), tie_break(cache, name)
        rank = (displaces, name in left, brings_bytes, share, tie)
        per_zone.setdefault(_zone(book), []).append((rank, name))
    for queue in per_zone.values():
        heapq.heapify(queue)
    picks: set[NodeName] = set()
    while len(picks) < count and per_zone:
        zone = min(per_zone, key=lambda zone: _order(per_zone[zone][0][0], zones[zone]))
        picks.add(heapq.heappop(per_zone[zone])[1])
        zones[zone] += 1
        if not per_zone[zone]:
            del per_zone[zone]
    return frozenset(picks), refusals


def _order(rank: _Rank, copies_in_zone: int) -> tuple[bool, bool, bool, int, float, str]:
    displaces, was_left, brings_bytes, share, tie = rank
    return displaces, was_left, brings_bytes, copies_in_zone, share, tie


def _zone(book: NodeBook) -> str:
    return book.node.labels.get(_ZONE_LABEL, "")


def tie_break(cache: Uid, name: NodeName) -> str:
    """An order of nodes that is the same in every process and differs between ModelCaches."""
    return hashlib.sha256(f"{cache}/{name}".encode()).hexdigest()
