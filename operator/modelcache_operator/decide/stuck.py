"""Which copies get no further where they are, and may move to a node that has what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from modelcache_api.names import EntryState, Reason
from modelcache_operator.decide.eligibility import Demand, has_room_after_eviction
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.world import NodeName

# Room that is being given up comes free within a few rounds of the agent.
PATIENCE_SECONDS: Final = 120.0
# What another node may do better. A source that cannot be read is the same everywhere.
_REASONS_OF_THE_NODE: Final = frozenset({Reason.INSUFFICIENT_SPACE, Reason.STORE_ERROR})

StuckSince = Mapping[NodeName, float]


def is_stuck(demand: Demand, book: NodeBook) -> bool:
    """True if the node cannot take in the copy that was placed on it."""
    entry = book.reported.get(demand.version)
    if entry is not None and entry.state is EntryState.FAILED:
        return entry.reason in _REASONS_OF_THE_NODE
    has_begun = entry is not None and entry.state is not EntryState.PENDING
    is_known = book.capacity_bytes is not None
    return is_known and not has_begun and not has_room_after_eviction(demand, book)


def note_stuck(
    previous: StuckSince,
    demand: Demand,
    assigned: Iterable[NodeName],
    books: Mapping[NodeName, NodeBook],
    now: float,
) -> dict[NodeName, float]:
    """Since when each copy is stuck. One more attempt of its agent does not set that back."""
    noted = {}
    for name in assigned:
        book = books.get(name)
        if book is None or book.has_verified(demand.version):
            continue
        if name in previous or is_stuck(demand, book):
            noted[name] = previous.get(name, now)
    return noted


def choose_movable(
    stuck: StuckSince, demand: Demand, books: Mapping[NodeName, NodeBook], now: float
) -> frozenset[NodeName]:
    """The copies that have been stuck for long enough, and are now."""
    return frozenset(
        name
        for name, since in stuck.items()
        if now - since >= PATIENCE_SECONDS and is_stuck(demand, books[name])
    )


def seconds_until_movable(stuck: StuckSince, now: float) -> float | None:
    """When to look again if nothing else happens."""
    waiting = [since + PATIENCE_SECONDS - now for since in stuck.values()]
    return min((seconds for seconds in waiting if seconds > 0), default=None)
