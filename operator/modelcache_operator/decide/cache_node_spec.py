"""What one node should hold, from what is placed there."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from modelcache_api.names import EntryOrigin
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheRef, EntrySpec
from modelcache_operator.decide.demand import DemandedCopy
from modelcache_operator.decide.placement import Books, tie_break
from modelcache_operator.decide.world import ModelVersionView, NodeName, ObjectKey, Uid


@dataclass(frozen=True, slots=True)
class PlacedCopy:
    """One ModelCache's copy on the node."""

    cache: ObjectKey
    version: ModelVersionView
    may_be_evicted: bool


def make_cache_node_spec(
    node_uid: Uid, copies: Iterable[PlacedCopy], demands: Iterable[DemandedCopy] = ()
) -> CacheNodeSpec:
    """The whole spec, sorted. Versions that are not resolved have nothing to fetch yet.

    ModelCaches that refer to one ModelVersion share an entry, which may be evicted only if each
    of them allows it. What pods read besides is added, and may always be evicted: where their
    volumes are mounted the agent protects it.
    """
    entries: dict[str, EntrySpec] = {}
    caches = []
    for copy in copies:
        entry = _make_entry(copy)
        if entry is None:
            continue
        shared = entries.get(entry.uid)
        if shared is not None and not shared.evictable:
            entry = shared
        entries[entry.uid] = entry
        caches.append(_refer(copy.cache, copy.version, EntryOrigin.PLACEMENT))
    for demand in demands:
        entry = _make_entry(PlacedCopy(demand.cache, demand.version, may_be_evicted=True))
        if entry is None:
            continue
        entries.setdefault(entry.uid, entry.model_copy(update={"origin": EntryOrigin.DEMAND}))
        caches.append(_refer(demand.cache, demand.version, EntryOrigin.DEMAND))
    return CacheNodeSpec(
        node_uid=node_uid,
        entries=tuple(entries[uid] for uid in sorted(entries)),
        caches=tuple(sorted(caches, key=lambda ref: (ref.namespace, ref.name))),
    )


def _refer(cache: ObjectKey, version: ModelVersionView, origin: EntryOrigin) -> CacheRef:
    return CacheRef(
        namespace=cache.namespace, name=cache.name, stable_uid=version.uid, origin=origin
    )


def _make_entry(copy: PlacedCopy) -> EntrySpec | None:
    status = copy.version.status
    if status.source_digest is None or status.size_bytes is None:
        return None
    return EntrySpec(
        uid=copy.version.uid,
        source_digest=status.source_digest,
        content_digest=status.content_digest,
        label_key=status.node_label_key,
        size_bytes=status.size_bytes,
        model=copy.version.spec.model,
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
    its agent may evict it before it hears of its new part.
    """
    ready = [name for name in live if books[name].has_verified(version)]
    ready.sort(key=lambda name: (name in evictable_now, tie_break(cache, name)))
    return frozenset(ready[min_ready:])
