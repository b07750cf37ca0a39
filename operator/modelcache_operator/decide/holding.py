"""What becomes of a version that has left the spec: its verified bytes stay for a while. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from modelcache_api.limits import MAX_HELD_VERSIONS
from modelcache_api.names import EntryState, Priority
from modelcache_api.v1alpha1.rollout import HeldVersion
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.placement import Books
from modelcache_operator.decide.world import NodeName, Uid

# What an agent says of whole bytes; after a restart it may hash them again.
_WHOLE: Final = frozenset({EntryState.CACHED, EntryState.VERIFYING})


@dataclass(frozen=True, slots=True)
class Successor:
    """The stable version: where it is placed, and whether all its copies are verified."""

    version: Uid | None
    nodes: frozenset[NodeName]
    is_healthy: bool


@dataclass(frozen=True, slots=True)
class HeldCopies:
    """Where a version is held, and where it may be given up."""

    nodes: frozenset[NodeName]
    evictable: frozenset[NodeName]


def hold(
    version: Uid,
    nodes: Iterable[NodeName],
    successor: Successor,
    books: Books,
    *,
    is_new: bool,
    remaining_seconds: float,
    drain_seconds: float,
) -> HeldCopies:
    """The copies that stay. Nothing is fetched for them: what is not whole goes at once.

    Time does not end it while the stable version lacks copies, nor, for `drain_seconds` more, where
    pods still use it. Where the stable version has no copy yet the held one makes room for it, if
    there is no other, and so it does where its room has been promised to others since.
    """
    may_wait = remaining_seconds > -drain_seconds
    is_over = remaining_seconds <= 0 and (successor.version is None or successor.is_healthy)
    kept = frozenset(
        name
        for name in nodes
        if name in books
        and _is_whole(version, books[name], is_new=is_new)
        and (not is_over or (may_wait and _count_mounts(version, books[name])))
    )
    if remaining_seconds <= 0:
        return HeldCopies(kept, kept)
    in_the_way = frozenset(
        name
        for name in kept & successor.nodes
        if successor.version is not None and not books[name].has_verified(successor.version)
    )
    return HeldCopies(
        kept, in_the_way | {name for name in kept if _lacks_room(version, books[name])}
    )


def _lacks_room(version: Uid, book: NodeBook) -> bool:
    """True if what stays on the node leaves no room for the held version."""
    given_up = book.evictable_bytes(version, Priority.HIGH)
    room = book.free_bytes(version) + given_up
    return book.capacity_bytes is not None and room < book.wanted.get(version, 0)


def report_held(
    version: Uid, held: Iterable[NodeBook], known: HeldVersion, stored: HeldVersion | None
) -> HeldVersion:
    """One row of the status; its end was fixed when it began, and its name may be gone."""
    books = tuple(held)
    before = stored or known
    return known.model_copy(
        update={
            "model_version": known.model_version or before.model_version,
            "digest": known.digest or before.digest,
            "until": before.until,
            "copies": len(books),
            "pods": sum(_count_mounts(version, book) for book in books),
        }
    )


def keep_newest(ends: Iterable[tuple[float, Uid]]) -> frozenset[Uid]:
    """As many held versions as a status tells of; those that end first give way."""
    return frozenset(uid for _, uid in sorted(ends)[-MAX_HELD_VERSIONS:])


def _is_whole(version: Uid, book: NodeBook, *, is_new: bool) -> bool:
    entry = book.reported.get(version)
    if is_new:
        return entry is not None and entry.state is EntryState.CACHED
    return entry is None or entry.state in _WHOLE


def _count_mounts(version: Uid, book: NodeBook) -> int:
    entry = book.reported.get(version)
    return (entry.mounts or 0) if entry is not None else 0
