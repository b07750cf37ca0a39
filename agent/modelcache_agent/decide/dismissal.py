"""Copies that somebody asked to let go: before their turn, and never what is protected. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.actions import Victim
from modelcache_agent.decide.matching import match_entries
from modelcache_agent.decide.measures import EvictionCause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelcache_agent.decide.admission import Room
    from modelcache_agent.decide.world import Held
    from modelcache_api.v1alpha1.cache_node import EntrySpec

LAPSES_SECONDS: Final = 3600.0
CAUSE: Final = "somebody asked for it"


def find_dismissed(
    asked: Mapping[str, float], entries: Sequence[EntrySpec], held: Sequence[Held], now: float
) -> frozenset[str]:
    """Digests of contents that came before their version was asked to go (Unix seconds, by uid).

    So nobody takes a wish back: what a pod brings again later is a copy that nobody meant. It
    lapses, lest a copy that had to stay goes days later, when the wish is forgotten.
    """
    asked = {uid: at for uid, at in asked.items() if abs(now - at) <= LAPSES_SECONDS}
    if not asked:
        return frozenset()
    matches = match_entries(entries, held)
    return frozenset(
        matches[uid].held.digest
        for uid, at in asked.items()
        if uid in matches and matches[uid].held.history.arrived < at
    )


def dismiss(room: Room, dismissed: frozenset[str]) -> Room:
    """They leave unless a process uses them; of `dismissed` nothing is protected otherwise."""
    leaving = dismissed - room.leaving
    if not leaving:
        return room
    chosen = room.policy.rank(held for held in room.unused if held.digest in leaving)
    victims = tuple(
        Victim(
            ranked.held.digest,
            room.policy.name,
            ranked.score,
            ranked.why,
            CAUSE,
            EvictionCause.ASKED,
        )
        for ranked in chosen
    )
    return replace(
        room,
        leaving=room.leaving.union(victim.digest for victim in victims),
        victims=(*room.victims, *victims),
        # Whose use nobody has looked at yet counts as in use.
        fell_short=room.fell_short or len(victims) < len(leaving),
    )
