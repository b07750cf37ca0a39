"""Who gives way to a newcomer on a card, or why the newcomer stays where it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelcache_agent.decide.gpu.capacity import Budget
from modelcache_api.names import Reason


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Whose content: never shared between namespaces, so equal bytes of two are two contents."""

    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A content that may give way. A pod that maps it keeps the bytes, so it would free nothing."""

    key: Key
    size_bytes: int
    is_attached: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """Load it, after these have gone."""

    victims: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Stay:
    """It stays in the tier below; one word and one sentence that say why.

    `was_refused`: by the card, although there was room by the book.
    """

    reason: Reason
    message: str
    was_refused: bool = False


def make_room(
    needed_bytes: int,
    budget: Budget,
    candidates: Sequence[Candidate],
    *,
    lingering_bytes: int = 0,
    was_refused: bool = False,
) -> Room | Stay:
    """Victims, the first of `candidates` first, as few as free enough.

    Args:
        needed_bytes: the newcomer's extents.
        budget: of this card, now.
        candidates: all that is held there, in the order of the eviction policy.
        lingering_bytes: what was given up and is mapped by pods still.
        was_refused: the card has just refused, although there was room by the book: its memory is
            in pieces, or somebody took it. What is free by the book counts for nothing then.
    """
    if needed_bytes > budget.ceiling_bytes:
        return Stay(
            Reason.NEVER_FITS,
            f"{needed_bytes} bytes are needed and {budget.ceiling_bytes} can be had at most on "
            "this card",
        )
    held = sum(candidate.size_bytes for candidate in candidates)
    free = 0 if was_refused else budget.capacity_bytes - held - lingering_bytes
    ordered = [candidate for candidate in candidates if not candidate.is_attached]
    victims = _choose(ordered, needed_bytes - free)
    if victims is None:
        freed = sum(candidate.size_bytes for candidate in ordered)
        return Stay(
            Reason.GPU_OUT_OF_MEMORY,
            f"{needed_bytes} bytes are needed, {max(0, free)} are free and {freed} could be given "
            f"up ({budget.why})",
        )
    return Room(victims)


def _choose(ordered: Sequence[Candidate], missing_bytes: int) -> tuple[Key, ...] | None:
    chosen: list[Candidate] = []
    freed = 0
    for candidate in ordered:
        if freed >= missing_bytes:
            break
        chosen.append(candidate)
        freed += candidate.size_bytes
    if freed < missing_bytes:
        return None
    for candidate in reversed(chosen.copy()):
        if freed - candidate.size_bytes >= missing_bytes:
            chosen.remove(candidate)
            freed -= candidate.size_bytes
    return tuple(candidate.key for candidate in chosen)
