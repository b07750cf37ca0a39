"""What one node should hold, from what is placed there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from modelcache_api.limits import MAX_ENTRIES_PER_NODE
from modelcache_api.names import EntryOrigin, Priority, Tier
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheRef, EntrySpec
from modelcache_operator.decide.demand import DemandedCopy
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.placement import Books, tie_break
from modelcache_operator.decide.withdrawal import describe_withdrawal
from modelcache_operator.decide.world import ModelVersionView, NodeName, ObjectKey, Uid

_RANK: Final = {EntryOrigin.PLACEMENT: 0, EntryOrigin.DEMAND: 1, EntryOrigin.HOLD: 2}


class Role(StrEnum):
    """What a version is to its ModelCache."""

    STABLE = "stable"
    CANARY = "canary"
    HELD = "held"


# What a node cannot be told of is what is least wanted.
_ORDER: Final = {Role.STABLE: 0, Role.CANARY: 1, Role.HELD: 2}


@dataclass(frozen=True, slots=True)
class PlacedCopy:
    """One ModelCache's copy on the node.

    A version that is gone or cannot be read is its own entry, as it stands: that stays in force.
    """

    cache: ObjectKey
    version: ModelVersionView | EntrySpec
    may_be_evicted: bool
    role: Role = Role.STABLE
    tier: Tier = Tier.DISK
    priority: Priority = Priority.NORMAL
    is_pinned: bool = False
    is_over_quota: bool = False


@dataclass(frozen=True, slots=True)
class CacheTracks:
    """What a node is told of a ModelCache besides its copies there."""

    stable: Uid
    canary_weight: int = 0


def make_cache_node_spec(
    node_uid: Uid,
    copies: Iterable[PlacedCopy],
    demands: Iterable[DemandedCopy] = (),
    tracks: Mapping[ObjectKey, CacheTracks] = MappingProxyType({}),
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
    placed = sorted(copies, key=lambda copy: (_ORDER[copy.role], copy.cache, copy.version.uid))
    made = [_Made(one.cache, one.role, e) for one in placed if (e := _make_entry(one)) is not None]
    made += [
        _Made(demand.cache, Role(demand.track), entry)
        for demand in demands
        if (entry := _make_demanded_entry(demand)) is not None
    ]
    del made[MAX_ENTRIES_PER_NODE:]
    entries: dict[str, EntrySpec] = {}
    for one in made:
        entries[one.entry.uid] = _share(entries.get(one.entry.uid), one.entry)
    by_cache: dict[ObjectKey, list[_Made]] = {}
    for one in made:
        by_cache.setdefault(one.cache, []).append(one)
    refs = (_make_ref(key, by_cache[key], tracks.get(key)) for key in sorted(by_cache))
    return CacheNodeSpec(
        node_uid=node_uid,
        entries=tuple(entries[uid] for uid in sorted(entries)),
        caches=tuple(ref for ref in refs if ref is not None),
    )


@dataclass(frozen=True, slots=True)
class _Made:
    cache: ObjectKey
    role: Role
    entry: EntrySpec


def _make_ref(
    cache: ObjectKey, made: Iterable[_Made], tracks: CacheTracks | None
) -> CacheRef | None:
    """One for all copies of a ModelCache; a version that is held and wanted again is wanted."""
    by_role = {one.role: one.entry for one in made if one.role is not Role.HELD}
    stable, canary = by_role.get(Role.STABLE), by_role.get(Role.CANARY)
    stable_uid = stable.uid if stable is not None else tracks and tracks.stable
    if stable_uid is None:
        return None
    wanted = {entry.uid for entry in by_role.values()}
    held = {one.entry.uid for one in made if one.role is Role.HELD} - wanted
    return CacheRef(
        namespace=cache.namespace,
        name=cache.name,
        stable_uid=stable_uid,
        origin=stable.origin if stable is not None else EntryOrigin.HOLD,
        canary_uid=canary.uid if canary is not None else None,
        canary_weight=tracks.canary_weight if canary is not None and tracks else 0,
        held_uids=tuple(sorted(held)),
    )


def _share(present: EntrySpec | None, more: EntrySpec) -> EntrySpec:
    """One entry for two ModelCaches: placed before demanded before held, protected before others.

    A held one that another wants is wanted, and stays protected.
    """
    if present is None:
        return more
    first, second = sorted((present, more), key=lambda one: _RANK[one.origin])
    update: dict[str, object] = {}
    if first.origin is EntryOrigin.PLACEMENT and second.origin is not EntryOrigin.DEMAND:
        update["evictable"] = first.evictable and second.evictable
    update["tier"] = max(first.tier, second.tier, key=lambda tier: tier.speed)
    update["priority"] = max(first.priority, second.priority, key=lambda priority: priority.rank)
    update["pinned"] = first.pinned or second.pinned
    update["over_quota"] = first.over_quota and second.over_quota
    return first.model_copy(update=update)


def _make_demanded_entry(demand: DemandedCopy) -> EntrySpec | None:
    entry = _make_entry(
        PlacedCopy(
            demand.cache,
            demand.version,
            may_be_evicted=True,
            tier=demand.tier,
            priority=demand.priority,
            is_over_quota=demand.is_over_quota,
        )
    )
    if entry is None:
        return None
    return entry.model_copy(update={"origin": EntryOrigin.DEMAND, "evictable": True})


def _make_entry(copy: PlacedCopy) -> EntrySpec | None:
    entry = _describe(copy)
    if entry is None or copy.role is not Role.HELD:
        return entry
    # No label brings pods to what has left the spec.
    held = {"origin": EntryOrigin.HOLD, "label_key": None}
    return entry.model_copy(update=held)


def _describe(copy: PlacedCopy) -> EntrySpec | None:
    if isinstance(copy.version, EntrySpec):
        own = {
            "origin": EntryOrigin.PLACEMENT,
            "evictable": copy.may_be_evicted,
            "priority": copy.priority,
            "pinned": copy.is_pinned and copy.role is not Role.HELD,
            "over_quota": copy.is_over_quota,
        }
        return copy.version.model_copy(update=own)
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
        name=copy.version.key.name,
        model=copy.version.spec.model,
        revision=status.source_revision,
        evictable=copy.may_be_evicted,
        priority=copy.priority,
        pinned=copy.is_pinned and copy.role is not Role.HELD,
        over_quota=copy.is_over_quota,
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
