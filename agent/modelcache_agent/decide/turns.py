"""Whose turn it is when more models wait than may be fetched at once. Pure.

A model that a pod on this node waits for goes before one that was placed ahead of need; then the
higher priority goes first; what was begun goes before what was not; then the order of the spec
holds, which is by uid.

If placed models hold all slots, the one of the lowest priority that began last makes way: its
transfer is ended, what it has fetched is kept, and it goes on when a slot is free. A slot kept back
for pods instead would serve one of them, stand empty most of the time, and exceed the number that
the administrator set. A pod's model that cannot be fetched gives its slot back for as long as its
own pause lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelcache_api.names import EntryOrigin, EntryState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Flight, World
    from modelcache_api.v1alpha1.cache_node import EntrySpec


def is_demanded(world: World, entry: EntrySpec) -> bool:
    """True if a live pod on this node waits for the version, placed here or not."""
    return entry.origin is EntryOrigin.DEMAND or entry.uid in world.attached


def order_by_turn(world: World) -> list[EntrySpec]:
    """The entries in the order in which they may take slots and room."""
    partials = world.ledger.partials
    return sorted(
        world.entries,
        key=lambda entry: (
            not is_demanded(world, entry),
            -entry.priority.rank,
            entry.uid not in partials,
        ),
    )


def list_yielding(world: World, flights: Iterable[Flight]) -> list[str]:
    """Transfers that make way for demanded models, the one to end first at the end.

    `flights` are in the order in which they began. What is verified and published already is
    nearly done.
    """
    demanded = {entry.uid for entry in world.entries if is_demanded(world, entry)}
    ranks = {entry.uid: entry.priority.rank for entry in world.entries}
    yielding = [
        flight.uid
        for flight in flights
        if flight.uid not in demanded and flight.state is EntryState.DOWNLOADING
    ]
    return sorted(yielding, key=lambda uid: -ranks.get(uid, 0))
