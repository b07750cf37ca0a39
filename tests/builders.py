"""Observed objects with sensible defaults; tests name only what they are about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from modelcache_api.names import Condition, EntryState, Priority, Reason, Retention, Tier
from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_api.v1alpha1.cache_node import (
    CacheNodeSpec,
    CacheNodeStatus,
    CacheRef,
    EntrySpec,
    EntryStatus,
    TierStatus,
)
from modelcache_api.v1alpha1.model_cache import (
    ModelCacheSpec,
    ModelCacheStatus,
    Placement,
    TrackSpec,
)
from modelcache_api.v1alpha1.model_cache_quota import (
    ModelCacheQuotaSpec,
    ModelCacheQuotaStatus,
    QuotaBytes,
)
from modelcache_api.v1alpha1.model_version import (
    ModelVersionSpec,
    ModelVersionStatus,
    OnSourceGone,
)
from modelcache_api.v1alpha1.source import Source
from modelcache_operator.decide.eligibility import Demand
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.node_book import NodeBook, make_node_book
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    PodView,
    TaintView,
    Uid,
)

GIB = 1024**3
NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
EARLIER = datetime(2026, 1, 31, 11, 0, tzinfo=UTC)


def digest(letter: str) -> str:
    return "sha256:" + letter * 64


def make_node(name: str = "n1", *, taints: Iterable[str] = (), **fields: Any) -> NodeView:
    """`taints` as kubectl writes them: key=value:Effect."""
    parsed = []
    for taint in taints:
        rest, _, effect = taint.rpartition(":")
        key, _, value = rest.partition("=")
        parsed.append(TaintView(key, value, effect))
    fields.setdefault("labels", {})
    return NodeView(NodeName(name), Uid(f"uid-{name}"), taints=tuple(parsed), **fields)


def make_entry(
    uid: str = "v1", state: EntryState = EntryState.CACHED, **fields: Any
) -> EntryStatus:
    if state is EntryState.CACHED:
        fields = {"content_digest": digest("c"), "progress_percent": 100, **fields}
    return EntryStatus(uid=uid, state=state, **fields)


def make_entry_spec(uid: str = "v1", **fields: Any) -> EntrySpec:
    return EntrySpec(**{"uid": uid, "source_digest": digest("a"), "size_bytes": GIB, **fields})


def make_cache_node(
    name: str = "n1",
    *,
    capacity: int | None = 100 * GIB,
    host: int | None = None,
    gpu: int | None = None,
    pending_release: int = 0,
    entries: Iterable[EntryStatus] = (),
    wanted: Iterable[EntrySpec] = (),
    caches: Iterable[CacheRef] = (),
    node_uid: str | None = None,
    conditions: Iterable[ConditionStatus] = (),
) -> CacheNodeView:
    tiers = ()
    if capacity is not None:
        tiers = (
            TierStatus(
                name=Tier.DISK,
                capacity_bytes=capacity,
                used_bytes=0,
                pending_release_bytes=pending_release,
            ),
        )
    if host is not None:
        tiers += (TierStatus(name=Tier.HOST, capacity_bytes=host, used_bytes=0),)
    if gpu is not None:
        tiers += (TierStatus(name=Tier.GPU, capacity_bytes=gpu, used_bytes=0),)
    spec = CacheNodeSpec(
        node_uid=node_uid or f"uid-{name}", entries=tuple(wanted), caches=tuple(caches)
    )
    status = CacheNodeStatus(tiers=tiers, entries=tuple(entries), conditions=tuple(conditions))
    return CacheNodeView(NodeName(name), Uid(f"cn-{name}"), spec, status)


def make_book(
    name: str = "n1",
    *,
    node: NodeView | None = None,
    cache_node: CacheNodeView | None = None,
    liveness: Liveness = Liveness.ALIVE,
    sizes: Mapping[str, int] | None = None,
    in_host: Iterable[str] = (),
    on_gpu: Iterable[str] = (),
    priorities: Mapping[str, Priority] | None = None,
    **fields: Any,
) -> NodeBook:
    """A node with a living agent; `fields` go to its CacheNode.

    `in_host` are those of `sizes` that are wanted in tier Host, `on_gpu` those in tier GPU.
    """
    return make_node_book(
        node or make_node(name),
        cache_node or make_cache_node(name, **fields),
        liveness,
        {Uid(uid): size for uid, size in (sizes or {}).items()},
        tiers={Uid(uid): Tier.HOST for uid in in_host} | {Uid(uid): Tier.GPU for uid in on_gpu},
        priorities={Uid(uid): priority for uid, priority in (priorities or {}).items()},
    )


def make_books(*books: NodeBook) -> dict[NodeName, NodeBook]:
    return {book.name: book for book in books}


def make_demand(
    size_bytes: int = GIB, *, version: str = "v1", tier: Tier = Tier.DISK, **placement: Any
) -> Demand:
    return Demand(Uid(version), size_bytes, Placement(**placement), tier)


def make_condition(
    reason: str = Reason.CACHED,
    status: str = "True",
    kind: str = Condition.READY,
    message: str = "",
    since: datetime = EARLIER,
    generation: int = 1,
) -> ConditionStatus:
    return ConditionStatus(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=since,
    )


def make_version(
    name: str = "m1",
    *,
    uid: str = "v1",
    namespace: str = "search",
    resolved: bool = True,
    spec_digest: str | None = None,
    on_source_gone: OnSourceGone = OnSourceGone.KEEP,
    generation: int = 1,
    is_deleted: bool = False,
    **status: Any,
) -> ModelVersionView:
    if resolved:
        status = {"source_digest": digest("a"), "size_bytes": GIB, "files": 3, **status}
    return ModelVersionView(
        ObjectKey(namespace, name),
        Uid(uid),
        generation,
        ModelVersionSpec(
            model="test/model",
            source=Source(uri="s3://models/m"),
            digest=spec_digest,
            on_source_gone=on_source_gone,
        ),
        ModelVersionStatus(**status),
        is_deleted,
    )


def make_cache(
    name: str = "c1",
    *,
    version: str = "m1",
    namespace: str = "search",
    uid: str | None = None,
    conditions: Iterable[ConditionStatus] = (),
    generation: int = 1,
    is_deleted: bool = False,
    tier: Tier = Tier.DISK,
    priority: Priority = Priority.NORMAL,
    retention: Retention = Retention.CACHED,
    created_at: str = "",
    **placement: Any,
) -> ModelCacheView:
    return ModelCacheView(
        ObjectKey(namespace, name),
        Uid(uid or f"uid-{namespace}-{name}"),
        generation,
        ModelCacheSpec(
            stable=TrackSpec(model_version=version),
            tier=tier,
            placement=Placement(**placement),
            priority=priority,
            retention=retention,
        ),
        ModelCacheStatus(conditions=tuple(conditions)),
        is_deleted,
        created_at,
    )


def make_quota(
    name: str = "q1",
    *,
    namespace: str = "search",
    generation: int = 1,
    max_priority: Priority = Priority.NORMAL,
    all_nodes: bool = False,
    **hard: str,
) -> ModelCacheQuotaView:
    """`hard` are quantities of disk, host and pinned."""
    return ModelCacheQuotaView(
        ObjectKey(namespace, name),
        Uid(f"uid-{namespace}-{name}"),
        generation,
        ModelCacheQuotaSpec(
            hard=QuotaBytes(**hard), max_priority=max_priority, all_nodes=all_nodes
        ),
        ModelCacheQuotaStatus(),
    )


def make_pod_view(
    name: str = "p1", *, cache: str = "c1", namespace: str = "search", **fields: Any
) -> PodView:
    """`node` is a plain name."""
    return PodView(
        ObjectKey(namespace, name),
        Uid(f"uid-{name}"),
        ObjectKey(namespace, cache),
        fields.pop("track", "stable"),
        **fields,
    )
