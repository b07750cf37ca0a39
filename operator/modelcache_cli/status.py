"""`status`: the whole cache on one page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from modelcache_api.names import EntryState, Reason, Tier
from modelcache_api.quantities import format_bytes
from modelcache_cli.fleet import Fleet, SeenCache, SeenNode
from modelcache_cli.output import render_columns
from modelcache_cli.why import Finding, Target, TargetKind

UNKNOWN_NODES = "nodes: unknown: you may not list cachenodes"
_BUSY = frozenset({EntryState.DOWNLOADING, EntryState.VERIFYING})


def summarise(fleet: Fleet) -> dict[str, Any]:
    """The page as a document; sizes are bytes. Nodes and tiers are null where not to be listed."""
    ready = sum(seen.finding.is_ready for seen in fleet.versions)
    return {
        "nodes": None if fleet.nodes is None else _count_nodes(fleet.nodes),
        "tiers": None if fleet.nodes is None else list(_sum_tiers(fleet.nodes)),
        "modelVersions": {"total": len(fleet.versions), "ready": ready},
        "modelCaches": [_cache_document(seen) for seen in fleet.caches],
        "findings": list(_list_findings(fleet)),
    }


def _count_nodes(nodes: Sequence[SeenNode]) -> dict[str, int]:
    """Copies of living agents: what a lost one said last is nobody's to use."""
    entries = [entry for node in nodes if node.is_alive for entry in node.status.entries]
    return {
        "total": len(nodes),
        "ready": sum(node.is_alive for node in nodes),
        "copies": sum(entry.state == EntryState.CACHED for entry in entries),
        "fetching": sum(entry.state in _BUSY for entry in entries),
        "failed": sum(entry.state == EntryState.FAILED for entry in entries),
    }


def _sum_tiers(nodes: Sequence[SeenNode]) -> Iterator[dict[str, Any]]:
    """Of living agents."""
    for tier in Tier:
        books = [book for node in nodes if node.is_alive for book in node.status.tiers]
        ours = [book for book in books if book.name is tier]
        if ours:
            yield {
                "name": tier.value,
                "nodes": len(ours),
                "capacityBytes": sum(book.capacity_bytes for book in ours),
                "usedBytes": sum(book.used_bytes for book in ours),
                "reservedBytes": sum(book.reserved_bytes for book in ours),
            }


def _cache_document(seen: SeenCache) -> dict[str, Any]:
    spec, status = seen.spec, seen.status
    copies = status.copies
    return {
        "namespace": seen.key.namespace,
        "name": seen.key.name,
        "stable": spec.stable.model_version,
        "canary": None if spec.canary is None else spec.canary.model_version,
        "traffic": status.traffic_summary,
        "copiesReady": copies.ready if copies else 0,
        "copiesWanted": copies.wanted if copies else None,
        "tier": spec.tier.value,
        "sizeBytes": status.size_bytes,
        "priority": spec.priority.value,
        "retention": spec.retention.value,
        "ready": seen.finding.is_ready,
        "reason": seen.finding.reason,
        "message": seen.finding.message,
    }


def _list_findings(fleet: Fleet) -> Iterator[dict[str, str]]:
    """Of everything that something can be done about, or that has not settled yet."""
    if fleet.nodes is not None and not fleet.nodes:
        told = Finding(Reason.NO_AGENT, "no agent has reported from any node")
        yield _tell_finding("nodes", told, told.find_cure())
    for target, finding in _iterate(fleet):
        if cure := finding.find_cure():
            yield _tell_finding(str(target), finding, cure)


def _tell_finding(what: str, finding: Finding, cure: str) -> dict[str, str]:
    return {
        "object": what,
        "reason": finding.reason,
        "message": finding.message,
        "cure": cure,
    }


def _iterate(fleet: Fleet) -> Iterator[tuple[Target, Finding]]:
    for node in fleet.nodes or ():
        yield Target(TargetKind.NODE, node.name, None), node.finding
    kinds = (
        (TargetKind.VERSION, fleet.versions),
        (TargetKind.CACHE, fleet.caches),
        (TargetKind.QUOTA, fleet.quotas),
    )
    for kind, seen in kinds:
        for one in seen:
            yield Target(kind, one.key.name, one.key.namespace), one.finding


def render_status(document: dict[str, Any], *, wide: bool) -> str:
    """The page for people."""
    parts = [_render_nodes(document), _render_caches(document["modelCaches"], wide=wide)]
    findings = [_tell(one) for one in document["findings"]]
    is_all = document["nodes"] is not None
    well = "everything is as it should be" if is_all else "of what you may see nothing is wrong"
    parts.append(findings or [well])
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _tell(finding: dict[str, str]) -> str:
    said = f": {finding['message']}" if finding["message"] else ""
    return f"{finding['object']}: {finding['reason']}{said}; cure: {finding['cure']}"


def _render_nodes(document: dict[str, Any]) -> list[str]:
    nodes = document["nodes"]
    if nodes is None:
        return [UNKNOWN_NODES]
    counts = (
        f"nodes: {nodes['ready']} of {nodes['total']} ready; copies: {nodes['copies']} verified, "
        f"{nodes['fetching']} under way, {nodes['failed']} failed"
    )
    lines = [counts]
    if document["tiers"]:
        rows = [("TIER", "NODES", "USED", "CAPACITY", "SHARE", "RESERVED")]
        rows += [
            (
                tier["name"],
                str(tier["nodes"]),
                format_bytes(tier["usedBytes"]),
                format_bytes(tier["capacityBytes"]),
                share(tier["usedBytes"], tier["capacityBytes"]),
                format_bytes(tier["reservedBytes"]),
            )
            for tier in document["tiers"]
        ]
        lines += ["", *render_columns(rows)]
    return lines


def _render_caches(caches: Sequence[dict[str, Any]], *, wide: bool) -> list[str]:
    if not caches:
        return ["no ModelCaches"]
    head = ["NAMESPACE", "NAME", "STABLE", "CANARY", "TRAFFIC", "COPIES", "TIER", "SIZE", "STATUS"]
    rows = [head + (["PRIORITY", "RETENTION", "MESSAGE"] if wide else [])]
    for one in caches:
        wanted = "?" if one["copiesWanted"] is None else one["copiesWanted"]
        row = [
            one["namespace"],
            one["name"],
            one["stable"],
            one["canary"] or "",
            one["traffic"] or "",
            f"{one['copiesReady']}/{wanted}",
            one["tier"],
            "?" if one["sizeBytes"] is None else format_bytes(one["sizeBytes"]),
            one["reason"],
        ]
        rows.append(row + ([one["priority"], one["retention"], one["message"]] if wide else []))
    return list(render_columns(rows))


def share(part: int, whole: int) -> str:
    """In percent; a dash of nothing."""
    return f"{part / whole:.0%}" if whole else "-"
