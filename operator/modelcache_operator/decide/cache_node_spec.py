"""What one node should hold, from what is placed there."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from modelcache_api.limits import MAX_ENTRIES_PER_NODE
from modelcache_api.names import EntryOrigin, Tier
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheRef, EntrySpec
from modelcache_operator.decide.demand import DemandedCopy
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.placement import Books, tie_break
from modelcache_operator.decide.withdrawal import describe_withdrawal
from modelcache_operator.decide.world import ModelVersionView, NodeName, ObjectKey, Uid


@dataclass(frozen=True, slots=True)
class PlacedCopy:
    """One ModelCache's copy on the node.

    A version that cannot be read is its own entry, as it stands: that stays in force.
    """

    cache: ObjectKey
    version: ModelVersionView | EntrySpec
    may_be_evicted: bool
    tier: Tier = Tier.DISK


def make_cache_node_spec(
    node_uid: Uid, copies: Iterable[PlacedCopy], demands: Iterable[DemandedCopy] = ()
) -> CacheNodeSpec:
    """The whole spec, sorted.

    Versions that are not resolved have nothing to fetch yet, and those that are withdrawn have
    nothing to hold. ModelCaches that refer to one ModelVersion share an entry, in the fastest
    tier that any of them wants, which may be evicted only if each of them allows it. What pods
    read besides is added, and may always be evicted: where their volumes are mounted the agent
    protects it.

    What is more than a CacheNode can hold is left out, the last demands first, then the last by
    name: placement and the choice of demands see to it that there is none.
    """
    placed = sorted(copies, key=lambda copy: copy.cache)
    made = [(copy.cache, entry) for copy in placed if (entry := _make_entry(copy)) is not None]
    made += [
        (demand.cache, entry)
        for demand in demands
        if (entry := _make_demanded_entry(demand)) is not None
    ]
    del made[MAX_ENTRIES_PER_NODE:]
    entries: dict[str, EntrySpec] = {}
    for _, entry in made:
        entries[entry.uid] = _share(entries.get(entry.uid), entry)
    caches = (
        CacheRef(
            namespace=cache.namespace, name=cache.name, stable_uid=entry.uid, origin=entry.origin
        )
        for cache, entry in sorted(made, key=lambda one: one[0])
    )
    return CacheNodeSpec(
        node_uid=node_uid,
        entries=tuple(entries[uid] for uid in sorted(entries)),
        caches=tuple(caches),
    )


def _share(present: EntrySpec | None, more: EntrySpec) -> EntrySpec:
    """One entry for two ModelCaches: a placed one before a demanded, a protected before others."""
    if present is None:
        return more
    chosen = more
    if more.origin is EntryOrigin.DEMAND or not present.evictable:
        chosen = present
    tier = max(present.tier, more.tier, key=lambda tier: tier.speed)
    return chosen if chosen.tier is tier else chosen.model_copy(update={"tier": tier})


def _make_demanded_entry(demand: DemandedCopy) -> EntrySpec | None:
    entry = _make_entry(
        PlacedCopy(demand.cache, demand.version, may_be_evicted=True, tier=demand.tier)
    )
    if entry is None:
        return None
    return entry.model_copy(update={"origin": EntryOrigin.DEMAND, "evictable": True})


def _make_entry(copy: PlacedCopy) -> EntrySpec | None:
    if isinstance(copy.version, EntrySpec):
        return copy.version.model_copy(update={"origin": EntryOrigin.PLACEMENT})
    status = copy.version.status
    if status.source_digest is None or status.size_bytes is None:
        return None
    if describe_withdrawal(copy.version) is not None:
        return None
    return EntrySpec(
        uid=copy.version.uid,
        source_digest=status.source_digest,
        content_digest=status.content_digest,
        label_key=status.node_label_key,
        tier=copy.tier,
        size_bytes=status.size_bytes,
        model=copy.version.spec.model,
        revision=status.source_revision,
        evictable=copy.may_be_evicted,
    )


def choose_evictable(
    cache: Uid,
    version: Uid,
    live: Iterable[NodeName],
    *,
    min_ready: int,
    evictable_now: AbstractSet[NodeName],
    books: Books,
) -> frozenset[NodeName]:
    """The copies that may be given up: verified ones beyond `min_ready` protected ones.

    A copy that may be given up now becomes protected only if no other verified one is left for it:
    its agent may evict it before it hears of its new part. A silent node's copy protects nobody,
    and is given up by nobody: its agent does not hear of it.
    """
    ready = [
        name
        for name in live
        if books[name].liveness is Liveness.ALIVE and books[name].has_verified(version)
    ]
    ready.sort(key=lambda name: (name in evictable_now, tie_break(cache, name)))
    return frozenset(ready[min_ready:])
