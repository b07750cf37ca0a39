"""Who is charged for what a node holds: namespaces, in full, and pinned copies. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modelcache_agent.decide.matching import match_entries
from modelcache_api.names import Tier

if TYPE_CHECKING:
    from modelcache_agent.decide.gpu.world import GpuView
    from modelcache_agent.decide.ledger import Ledger
    from modelcache_agent.decide.matching import Match
    from modelcache_agent.decide.world import Held
    from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheRef, EntrySpec


@dataclass(frozen=True, slots=True)
class Charges:
    """Bytes by tier. What two namespaces share is in the book once, and charged to both."""

    namespaces: Mapping[str, Mapping[Tier, int]] = field(default_factory=dict)
    pinned: Mapping[Tier, int] = field(default_factory=dict)


def charge(
    spec: CacheNodeSpec,
    held: Sequence[Held],
    books: Mapping[Tier, Ledger],
    card: GpuView | None = None,
) -> Charges:
    """What each namespace is charged in each tier's book and on the card, transfers included."""
    matches = match_entries(spec.entries, held)
    by_namespace: dict[str, set[str]] = {}
    for ref in spec.caches:
        by_namespace.setdefault(ref.namespace, set()).update(list_uids(ref))
    pinned = {entry.uid for entry in spec.entries if entry.pinned}
    return Charges(
        namespaces={
            namespace: _charge(spec.entries, uids, matches, books) | _charge_card(uids, card)
            for namespace, uids in by_namespace.items()
        },
        pinned=_charge(spec.entries, pinned, matches, books) | _charge_card(pinned, card),
    )


def list_uids(ref: CacheRef) -> set[str]:
    """All versions that the ModelCache has here: stable, canary and held."""
    named = {ref.stable_uid, *ref.held_uids}
    return named if ref.canary_uid is None else named | {ref.canary_uid}


def _charge(
    entries: Sequence[EntrySpec],
    uids: set[str],
    matches: Mapping[str, Match],
    books: Mapping[Tier, Ledger],
) -> dict[Tier, int]:
    """An entry is charged in the tiers that it is wanted in, once for each content."""
    charged: dict[Tier, int] = {}
    for tier, book in books.items():
        wanted = [one for one in entries if one.uid in uids and one.tier.speed >= tier.speed]
        digests = {matches[one.uid].held.digest for one in wanted if one.uid in matches}
        under_way = {one.uid for one in wanted if one.uid not in matches}
        charged[tier] = book.claimed_bytes(digests, under_way)
    return charged


def _charge_card(uids: set[str], card: GpuView | None) -> dict[Tier, int]:
    """On a card nothing is shared: each namespace has its own copies."""
    if card is None:
        return {}
    held = sum(copy.size_bytes for key, copy in card.held.items() if key.uid in uids)
    coming = sum(size for key, size in card.loading.items() if key.uid in uids)
    return {Tier.GPU: held + coming}
