"""Whether a newcomer may come, has to wait, or makes others leave. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modelcache_agent.decide.actions import EntryView, Victim
from modelcache_agent.decide.measures import EvictionCause
from modelcache_agent.decide.victims import choose_victims
from modelcache_api.names import EntryState, Reason
from modelcache_api.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modelcache_agent.decide.ledger import Ledger
    from modelcache_agent.decide.policies import EvictionPolicy
    from modelcache_agent.decide.world import Held
    from modelcache_api.v1alpha1.cache_node import EntrySpec


@dataclass(frozen=True, slots=True)
class Room:
    """The book while a plan is being made.

    `leaving` are contents on their way out, whose bytes are coming; `promised_bytes` of those are
    meant for newcomers that already wait. `unused` may give way to newcomers, `victims` do; those
    of `fresh` came so recently that they go last. `kept_free_bytes` are those above the watermark.
    `standing` orders contents before the policy does: the lowest goes first, and makes no room that
    a higher one has.
    """

    ledger: Ledger
    free_bytes: int
    policy: EvictionPolicy
    unused: tuple[Held, ...] = ()
    leaving: frozenset[str] = frozenset()
    condemned_before: frozenset[str] = frozenset()
    promised_bytes: int = 0
    fell_short: bool = False
    victims: tuple[Victim, ...] = ()
    fresh: frozenset[str] = frozenset()
    kept_free_bytes: int = 0
    standing: Mapping[str, int] = field(default_factory=dict)

    @property
    def now_bytes(self) -> int:
        """What may be promised at once: within the capacity and the file system's free space."""
        usable = self.free_bytes - self.kept_free_bytes
        return min(self.ledger.available_bytes, usable - self.ledger.reserved_bytes)

    @property
    def soon_bytes(self) -> int:
        """What may be promised once everything that leaves is gone."""
        return self.now_bytes + self.ledger.freed_bytes(self.leaving) - self.promised_bytes


def describe_never_fits(entry: EntrySpec, ledger: Ledger) -> str | None:
    """Why the entry can never be held here, or None."""
    if entry.size_bytes <= ledger.capacity_bytes:
        return None
    return (
        f"needs {_amount(entry.size_bytes)}, the whole capacity is "
        f"{_amount(ledger.capacity_bytes)}: give the cache more disk or place it elsewhere"
    )


def shed(room: Room) -> Room:
    """Contents leave while the cache holds more than its capacity, as after it was lowered."""
    excess = -(room.ledger.available_bytes + room.ledger.freed_bytes(room.leaving))
    if excess <= 0:
        return room
    why = "the cache holds more than its capacity"
    made = make_room(room, excess, why=why, kind=EvictionCause.SHRUNK)
    return made or replace(room, fell_short=True)


def admit(room: Room, entry: EntrySpec, size_bytes: int) -> tuple[Room, EntryView | None]:
    """The room after the entry was considered, and why it waits (None: fetch it now).

    `size_bytes` is what is missing of it.
    """
    needed = room.ledger.needed_bytes(entry.uid, size_bytes)
    if needed > room.soon_bytes:
        why, rank = f"uid={entry.uid} needs room", entry.priority.rank
        larger = make_room(room, needed - room.soon_bytes, why=why, highest=rank)
        if larger is None:
            return replace(room, fell_short=True), _view(
                entry, EntryState.FAILED, Reason.INSUFFICIENT_SPACE, _arithmetic(room, needed, rank)
            )
        room = larger
    if needed > max(0, room.now_bytes):
        message = f"waits until {_amount(needed)} are released"
        waiting = replace(room, promised_bytes=room.promised_bytes + needed)
        return waiting, _view(entry, EntryState.PENDING, Reason.WAITING, message)
    return replace(room, ledger=room.ledger.reserve(entry.uid, size_bytes)), None


def make_room(
    room: Room,
    missing_bytes: int,
    *,
    why: str,
    kind: EvictionCause = EvictionCause.ROOM,
    highest: int | None = None,
) -> Room | None:
    """The room once unused contents leave for it; None if all of them would not do.

    None of a standing above `highest` leaves.
    """
    candidates = tuple(
        held for held in _list_lower(room, highest) if held.digest not in room.leaving
    )
    chosen = choose_victims(
        candidates,
        missing_bytes,
        ledger=room.ledger,
        leaving=room.leaving,
        condemned=room.condemned_before,
        fresh=room.fresh,
        policy=room.policy,
        standing=room.standing,
    )
    if chosen is None:
        return None
    victims = tuple(
        Victim(ranked.held.digest, room.policy.name, ranked.score, ranked.why, why, kind)
        for ranked in chosen
    )
    leaving = room.leaving.union(victim.digest for victim in victims)
    return replace(room, leaving=leaving, victims=(*room.victims, *victims))


def _list_lower(room: Room, highest: int | None) -> Iterator[Held]:
    for held in room.unused:
        if highest is None or room.standing.get(held.digest, 0) <= highest:
            yield held


def _arithmetic(room: Room, needed: int, highest: int) -> str:
    book = room.ledger
    evictable = frozenset(held.digest for held in _list_lower(room, highest))
    could_free = book.freed_bytes(evictable | room.leaving)
    kept = room.kept_free_bytes
    mark = f", of which {_amount(kept)} stay free above the watermark" if kept else ""
    return (
        f"needs {_amount(needed)}, {_amount(max(0, room.now_bytes))} are free: capacity "
        f"{_amount(book.capacity_bytes)}, used {_amount(book.used_bytes)}, reserved "
        f"{_amount(book.reserved_bytes)}, pending release {_amount(book.pending_release_bytes)}, "
        f"file system free {_amount(room.free_bytes)}{mark}; "
        f"eviction could free {_amount(could_free)}"
    )


def _amount(size_bytes: int) -> str:
    return f"{format_bytes(size_bytes)} ({size_bytes} bytes)"


def _view(entry: EntrySpec, state: EntryState, reason: Reason, message: str) -> EntryView:
    return EntryView(entry.uid, state, reason, message)
