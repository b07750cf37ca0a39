"""A plan as text for people, and as a document. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from modelcache_api.names import Tier
from modelcache_api.quantities import format_bytes
from modelcache_cli.capacity.fit import Beside, Fit, NodeLoad, PlacedCache, Refused
from modelcache_cli.capacity.formulas import Bandwidth, Storage
from modelcache_cli.output import render_columns


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome with its arithmetic."""

    fit: Fit
    storage: Storage
    bandwidth: Bandwidth

    @property
    def fits(self) -> bool:
        """True if every ModelCache gets what it wants and each node keeps its headroom."""
        return not self.fit.refusals and not self.fit.crowded(self.storage.headroom)


def to_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON; sizes are bytes."""
    headroom = plan.storage.headroom
    crowded = {node.name for node, _ in plan.fit.crowded(headroom)}
    return {
        "fits": plan.fits,
        "tiers": [_tier_document(plan, tier) for tier in plan.fit.tiers],
        "nodes": [
            {
                "name": node.name,
                "capacityBytes": node.disk.capacity_bytes,
                "bookedBytes": node.disk.booked_bytes,
                "tiers": [
                    {
                        "name": load.tier,
                        "capacityBytes": load.capacity_bytes,
                        "bookedBytes": load.booked_bytes,
                    }
                    for load in node.tiers
                ],
                "modelCaches": node.caches,
                "keepsHeadroom": node.name not in crowded,
            }
            for node in plan.fit.nodes
        ],
        "quotas": [
            {
                "namespace": load.namespace,
                "item": load.item,
                "usedBytes": load.used_bytes,
                "hardBytes": load.hard_bytes,
            }
            for load in plan.fit.quotas
        ],
        "modelCaches": [_cache_document(cache) for cache in plan.fit.caches],
        "storage": {
            "entries": plan.storage.entries,
            "meanSizeBytes": plan.storage.mean_size_bytes,
            "redundancy": plan.storage.redundancy,
            "neededBytes": plan.storage.needed_bytes,
        },
        "bandwidth": {
            "peakStarts": plan.bandwidth.peak,
            "withinSeconds": plan.bandwidth.seconds,
            "storeBytesPerSecond": round(plan.bandwidth.store_bytes_per_second),
            "diskBytesPerSecond": round(plan.bandwidth.disk_bytes_per_second),
        },
    }


def _tier_document(plan: Plan, tier: Tier) -> dict[str, Any]:
    loads = [load for node in plan.fit.nodes if (load := node.of(tier)) is not None]
    return {
        "name": tier,
        "capacityBytes": sum(load.capacity_bytes or 0 for load in loads),
        "bookedBytes": sum(load.booked_bytes for load in loads),
        "headroom": plan.storage.headroom,
    }


def _cache_document(cache: PlacedCache) -> dict[str, Any]:
    return {
        "namespace": cache.key.namespace,
        "name": cache.key.name,
        "modelVersion": cache.version.name,
        "sizeBytes": cache.size_bytes,
        "nodes": list(cache.nodes),
        "wanted": cache.wanted,
        "tier": cache.tier,
        **_refused_document(cache.refused),
        "canary": None if cache.canary is None else _beside_document(cache.canary),
        "held": None if cache.held is None else _beside_document(cache.held),
    }


def _beside_document(beside: Beside) -> dict[str, Any]:
    return {
        "modelVersion": beside.version.name,
        "sizeBytes": beside.size_bytes,
        "nodes": list(beside.nodes),
        "wanted": beside.wanted,
        "extraBytes": beside.extra_bytes,
        **_refused_document(beside.refused),
    }


def _refused_document(refused: Refused | None) -> dict[str, Any]:
    return {
        "reason": None if refused is None else refused.reason,
        "message": "" if refused is None else refused.message,
    }


def render_plan(plan: Plan) -> str:
    """Tables of ModelCaches and nodes, what is refused, the formulas, and the answer."""
    caches = [
        ("MODELCACHE", "MODELVERSION", "TIER", "SIZE", "COPIES", "REASON", "NODES"),
        *(_cache_row(cache) for cache in plan.fit.caches),
    ]
    nodes = [
        ("NODE", "TIER", "CAPACITY", "BOOKED", "SHARE", "MODELCACHES"),
        *(row for node in plan.fit.nodes for row in _node_rows(node)),
    ]
    return "\n".join(
        (*render_columns(caches), "", *render_columns(nodes), "", *_sentences(plan), "")
    )


def _cache_row(cache: PlacedCache) -> tuple[str, ...]:
    shown = ", ".join(cache.nodes[:3]) + (", ..." if len(cache.nodes) > 3 else "")  # noqa: PLR2004
    size = format_bytes(cache.size_bytes) if cache.size_bytes else "?"
    copies = f"{len(cache.nodes)}/{cache.wanted}"
    reason = cache.refused.reason.value if cache.refused is not None else "-"
    return str(cache.key), cache.version.name, cache.tier, size, copies, reason, shown or "-"


def _node_rows(node: NodeLoad) -> Iterator[tuple[str, ...]]:
    for load in node.tiers:
        capacity = "?" if load.capacity_bytes is None else format_bytes(load.capacity_bytes)
        booked, share = format_bytes(load.booked_bytes), f"{load.share:.0%}"
        yield node.name, load.tier, capacity, booked, share, str(node.caches)


def _sentences(plan: Plan) -> Iterator[str]:
    for name, refused in plan.fit.refusals:
        yield f"refused: {name}: {refused.reason}: {refused.message}"
    for cache in plan.fit.caches:
        yield from _rollout_sentences(cache)
    for quota in plan.fit.quotas:
        used, hard = format_bytes(quota.used_bytes), format_bytes(quota.hard_bytes)
        yield f"quota: {quota.namespace}: {used} of {hard} of {quota.item}"
    storage, bandwidth = plan.storage, plan.bandwidth
    for node, load in plan.fit.crowded(storage.headroom):
        where = node.name if load is node.disk else f"{node.name}, tier {load.tier}"
        yield (
            f"crowded: {where}: {format_bytes(load.booked_bytes)} of "
            f"{format_bytes(load.capacity_bytes or 0)} leaves less than {storage.headroom:.0%} more"
        )
    yield (
        f"storage: {storage.entries} versions x {format_bytes(storage.mean_size_bytes)} x "
        f"{storage.redundancy:.3g} copies x {1 + storage.headroom:.3g} = "
        f"{format_bytes(storage.needed_bytes)} of {format_bytes(storage.capacity_bytes)}"
    )
    yield (
        f"bandwidth: {bandwidth.peak} cold starts of {format_bytes(bandwidth.mean_size_bytes)} "
        f"within {bandwidth.seconds:.0f} s: "
        f"{format_bytes(round(bandwidth.store_bytes_per_second))}/s from the store (1 read each), "
        f"{format_bytes(round(bandwidth.disk_bytes_per_second))}/s on disks (1 write and 1 read)"
    )
    yield "it fits" if plan.fits else "it does not fit"


def _rollout_sentences(cache: PlacedCache) -> Iterator[str]:
    """The bytes that a rollout takes beside the stable version, before it starts."""
    kinds = (("canary", cache.canary, ""), ("held", cache.held, ", until rollout.holdFor is over"))
    for word, beside, until in kinds:
        if beside is not None and beside.size_bytes:
            yield (
                f"rollout: {cache.key}: {word} {beside.version.name} takes {beside.wanted} x "
                f"{format_bytes(beside.size_bytes)} = {format_bytes(beside.extra_bytes)} beside "
                f"{cache.version.name}{until}"
            )
