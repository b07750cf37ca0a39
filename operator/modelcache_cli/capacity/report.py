"""A plan as text for people, and as a document. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from modelcache_api.quantities import format_bytes
from modelcache_cli.capacity.fit import Fit, NodeLoad, PlacedCache
from modelcache_cli.capacity.formulas import Bandwidth, Storage


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome with its arithmetic."""

    fit: Fit
    storage: Storage
    bandwidth: Bandwidth

    @property
    def fits(self) -> bool:
        """True if every ModelCache gets its nodes and each node keeps its headroom."""
        return not self.fit.refused and not self.fit.crowded(self.storage.headroom)


def to_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON; sizes are bytes."""
    headroom = plan.storage.headroom
    crowded = {load.name for load in plan.fit.crowded(headroom)}
    return {
        "fits": plan.fits,
        "tiers": [
            {
                "name": plan.fit.tier,
                "capacityBytes": plan.storage.capacity_bytes,
                "bookedBytes": sum(load.booked_bytes for load in plan.fit.nodes),
                "headroom": headroom,
            }
        ],
        "nodes": [
            {
                "name": load.name,
                "capacityBytes": load.capacity_bytes,
                "bookedBytes": load.booked_bytes,
                "modelCaches": load.caches,
                "keepsHeadroom": load.name not in crowded,
            }
            for load in plan.fit.nodes
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


def _cache_document(cache: PlacedCache) -> dict[str, Any]:
    return {
        "namespace": cache.key.namespace,
        "name": cache.key.name,
        "modelVersion": cache.version.name,
        "sizeBytes": cache.size_bytes,
        "nodes": list(cache.nodes),
        "wanted": cache.wanted,
        "reason": cache.reason,
        "message": cache.message,
    }


def render_plan(plan: Plan) -> str:
    """Tables of ModelCaches and nodes, what is refused, the formulas, and the answer."""
    caches = [
        ("MODELCACHE", "MODELVERSION", "SIZE", "COPIES", "REASON", "NODES"),
        *(_cache_row(cache) for cache in plan.fit.caches),
    ]
    nodes = [
        ("NODE", "DISK", "BOOKED", "SHARE", "MODELCACHES"),
        *(_node_row(load) for load in plan.fit.nodes),
    ]
    return "\n".join((*_columns(caches), "", *_columns(nodes), "", *_sentences(plan), ""))


def _cache_row(cache: PlacedCache) -> tuple[str, ...]:
    shown = ", ".join(cache.nodes[:3]) + (", ..." if len(cache.nodes) > 3 else "")  # noqa: PLR2004
    size = format_bytes(cache.size_bytes) if cache.size_bytes else "?"
    copies = f"{len(cache.nodes)}/{cache.wanted}"
    return str(cache.key), cache.version.name, size, copies, cache.reason or "-", shown or "-"


def _node_row(load: NodeLoad) -> tuple[str, ...]:
    capacity = "?" if load.capacity_bytes is None else format_bytes(load.capacity_bytes)
    booked, share = format_bytes(load.booked_bytes), f"{load.share:.0%}"
    return load.name, capacity, booked, share, str(load.caches)


def _sentences(plan: Plan) -> Iterator[str]:
    for cache in plan.fit.refused:
        yield f"refused: {cache.key}: {cache.reason}: {cache.message}"
    storage, bandwidth = plan.storage, plan.bandwidth
    for load in plan.fit.crowded(storage.headroom):
        yield (
            f"crowded: {load.name}: {format_bytes(load.booked_bytes)} of "
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


def _columns(lines: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()
