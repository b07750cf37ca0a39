"""`top`: nodes and models by tier, as their agents report them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from modelcache_api.names import EntryState, Tier
from modelcache_api.quantities import format_bytes
from modelcache_api.v1alpha1.cache_node import EntryStatus
from modelcache_cli.fleet import Fleet, SeenNode, SeenVersion
from modelcache_cli.output import render_columns
from modelcache_cli.status import UNKNOWN_NODES, share

_BUSY: Final = frozenset({EntryState.DOWNLOADING, EntryState.VERIFYING})


def list_nodes(fleet: Fleet) -> dict[str, Any]:
    """Each node with the book of each of its tiers, the fullest disk first; sizes are bytes."""
    nodes = sorted(fleet.nodes or (), key=lambda node: (-_fullness(node), node.name))
    return {"nodes": None if fleet.nodes is None else [_node_document(node) for node in nodes]}


def _fullness(node: SeenNode) -> float:
    disk = next((book for book in node.status.tiers if book.name is Tier.DISK), None)
    return disk.used_bytes / disk.capacity_bytes if disk and disk.capacity_bytes else 0.0


def _node_document(node: SeenNode) -> dict[str, Any]:
    entries = node.status.entries
    tiers = {
        book.name.value: {
            "capacityBytes": book.capacity_bytes,
            "usedBytes": book.used_bytes,
            "reservedBytes": book.reserved_bytes,
            "pendingReleaseBytes": book.pending_release_bytes,
            "pressure": book.pressure,
        }
        for book in node.status.tiers
    }
    return {
        "name": node.name,
        "ready": node.is_alive,
        "tiers": tiers,
        "models": sum(entry.state == EntryState.CACHED for entry in entries),
        "fetching": sum(entry.state in _BUSY for entry in entries),
        "failed": sum(entry.state == EntryState.FAILED for entry in entries),
        "mounts": sum(entry.mounts or 0 for entry in entries),
        "agentVersion": node.status.agent_version,
    }


def list_models(fleet: Fleet) -> dict[str, Any]:
    """Each version with the nodes that hold it, by tier, the most bytes on disks first.

    `nodes` of a tier are those that hold it there or in a faster one, as in its status.
    """
    if fleet.nodes is None:
        return {"models": None}
    models = [_model_document(seen, fleet.nodes) for seen in fleet.versions]
    order = lambda one: (-one["diskBytes"], one["namespace"], one["name"])  # noqa: E731
    return {"models": sorted(models, key=order)}


def _model_document(seen: SeenVersion, nodes: Sequence[SeenNode]) -> dict[str, Any]:
    entries = list(_find_entries(seen.uid, nodes))
    cached = [entry for entry in entries if entry.state == EntryState.CACHED]
    size = seen.status.size_bytes
    held = {
        tier.value: sum((entry.tier or Tier.DISK).speed >= tier.speed for entry in cached)
        for tier in Tier
    }
    busy = [entry.progress_percent for entry in entries if entry.state in _BUSY]
    return {
        "namespace": seen.key.namespace,
        "name": seen.key.name,
        "model": seen.spec.model,
        "sizeBytes": size,
        "nodes": held,
        "diskBytes": (size or 0) * held[Tier.DISK.value],
        "fetching": len(busy),
        "slowestPercent": min(busy, default=None),
        "failed": sum(entry.state == EntryState.FAILED for entry in entries),
        "evicted": sum(entry.state == EntryState.EVICTED for entry in entries),
        "mounts": sum(entry.mounts or 0 for entry in entries),
        "contentDigest": seen.status.content_digest,
    }


def _find_entries(uid: str, nodes: Sequence[SeenNode]) -> Iterator[EntryStatus]:
    """What living agents report of it."""
    for node in nodes:
        if node.is_alive:
            yield from (entry for entry in node.status.entries if entry.uid == uid)


def render_nodes(document: dict[str, Any], *, wide: bool) -> str:
    """The table of nodes."""
    if document["nodes"] is None:
        return f"{UNKNOWN_NODES}\n"
    head = ["NODE", "READY", *(tier.value.upper() for tier in Tier)]
    head += ["MODELS", "FETCHING", "FAILED", "MOUNTS"]
    rows = [head + (["RESERVED", "PENDINGRELEASE", "AGENT", "PRESSURE"] if wide else [])]
    for node in document["nodes"]:
        counts = [str(node[key]) for key in ("models", "fetching", "failed", "mounts")]
        books = [_render_book(node["tiers"].get(tier.value)) for tier in Tier]
        row = [node["name"], str(node["ready"]), *books, *counts]
        rows.append(row + (_wide_cells(node) if wide else []))
    return "\n".join(render_columns(rows)) + "\n"


def _render_book(book: dict[str, Any] | None) -> str:
    if book is None:
        return "-"
    used, capacity = book["usedBytes"], book["capacityBytes"]
    return f"{format_bytes(used)}/{format_bytes(capacity)} {share(used, capacity)}"


def _wide_cells(node: dict[str, Any]) -> list[str]:
    books = node["tiers"].values()
    return [
        format_bytes(sum(book["reservedBytes"] for book in books)),
        format_bytes(sum(book["pendingReleaseBytes"] for book in books)),
        node["agentVersion"] or "?",
        "; ".join(book["pressure"] for book in books if book["pressure"]) or "-",
    ]


def render_models(document: dict[str, Any], *, wide: bool) -> str:
    """The table of versions."""
    if document["models"] is None:
        return f"{UNKNOWN_NODES}\n"
    head = ["NAMESPACE", "MODELVERSION", "SIZE", *(tier.value.upper() for tier in Tier)]
    head += ["ONDISKS", "FETCHING", "FAILED", "EVICTED", "MOUNTS"]
    rows = [head + (["MODEL", "DIGEST"] if wide else [])]
    for one in document["models"]:
        fetching = str(one["fetching"])
        if one["slowestPercent"] is not None:
            fetching += f" ({one['slowestPercent']}%)"
        row = [
            one["namespace"],
            one["name"],
            "?" if one["sizeBytes"] is None else format_bytes(one["sizeBytes"]),
            *(str(one["nodes"][tier.value]) for tier in Tier),
            format_bytes(one["diskBytes"]),
            fetching,
            *(str(one[key]) for key in ("failed", "evicted", "mounts")),
        ]
        rows.append(row + ([one["model"] or "-", one["contentDigest"] or "-"] if wide else []))
    return "\n".join(render_columns(rows)) + "\n"
