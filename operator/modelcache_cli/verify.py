"""`verify`: what the cluster knows of a ModelVersion, and what of it is not right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from modelcache_api.conditions import truncate
from modelcache_api.durations import parse_duration
from modelcache_api.names import Condition, EntryState
from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_api.v1alpha1.cache_node import CacheNode, CacheNodeStatus, EntryStatus
from modelcache_api.v1alpha1.model_version import ModelVersion, ModelVersionStatus
from modelcache_cli.fleet import parse_object
from modelcache_cli.new_version import fetch_version
from modelcache_kube import CACHE_NODES, Forbidden, KubeClient
from modelcache_operator.decide.source_check import is_pinned
from modelcache_operator.decide.world import ObjectKey

_LOST: Final = "Lost"
# A check is written at most once an hour, and trouble is told by a condition of its own.
_RECORD_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class NodeCopy:
    """One node that should hold the version. `entry` is None until its agent has taken notice."""

    node: str
    entry: EntryStatus | None
    is_lost: bool = False

    @property
    def state(self) -> str:
        """Its state in one word."""
        if self.is_lost:
            return _LOST
        return self.entry.state if self.entry else EntryState.PENDING


@dataclass(frozen=True, slots=True)
class Observation:
    """What was read. `copies` is None if CacheNodes may not be."""

    key: ObjectKey
    generation: int
    version: ModelVersion
    copies: tuple[NodeCopy, ...] | None
    now: datetime

    @property
    def status(self) -> ModelVersionStatus:
        """The status, empty while there is none."""
        return self.version.status or ModelVersionStatus()

    def condition(self, kind: Condition) -> ConditionStatus | None:
        """The condition of that type."""
        return next((c for c in self.status.conditions if c.type == kind), None)


async def observe_version(kube: KubeClient, key: ObjectKey, now: datetime) -> Observation:
    """Read the version and the nodes that should hold it.

    Raises:
        CliError: there is no such ModelVersion.
    """
    found = await fetch_version(kube, key)
    metadata = found["metadata"]
    try:
        nodes: Sequence[Mapping[str, Any]] | None = (await kube.list(CACHE_NODES)).items
    except Forbidden:
        nodes = None
    copies = None if nodes is None else tuple(_copies(nodes, metadata["uid"]))
    version = parse_object(ModelVersion, found)
    return Observation(key, metadata.get("generation", 0), version, copies, now)


def _copies(nodes: Sequence[Mapping[str, Any]], uid: str) -> Iterator[NodeCopy]:
    for raw in nodes:
        node = parse_object(CacheNode, raw)
        if node.spec.find_entry(uid) is None:
            continue
        status = node.status or CacheNodeStatus()
        entry = next((entry for entry in status.entries if entry.uid == uid), None)
        ready = next((c for c in status.conditions if c.type == Condition.READY), None)
        is_lost = ready is not None and ready.status != "True"
        yield NodeCopy(raw["metadata"]["name"], entry, is_lost)


def describe(seen: Observation) -> str:
    """Lines for people, each a name and what is known."""
    status, spec = seen.status, seen.version.spec
    size = f" ({status.files} files, {status.size})" if status.size else ""
    rows = (
        ("ModelVersion", str(seen.key)),
        ("Source", f"{spec.source.uri}{size}"),
        ("Source digest", status.source_digest or "not resolved yet"),
        ("Source state", _tell_source(seen)),
        ("Last check", _tell_check(seen)),
        ("Content digest", status.content_digest or "not known yet: no verified copy"),
        ("Nodes", _tell_nodes(seen)),
    )
    return "".join(f"{name:<16}{truncate(text)}\n" for name, text in rows)


def to_document(seen: Observation, problem: str | None) -> dict[str, Any]:
    """The same for programs, with what is not right; `nodes` is null if they may not be listed."""
    status, source = seen.status, seen.condition(Condition.SOURCE_CURRENT)
    return {
        "namespace": seen.key.namespace,
        "name": seen.key.name,
        "uri": seen.version.spec.source.uri,
        "sourceDigest": status.source_digest,
        "contentDigest": status.content_digest,
        "sizeBytes": status.size_bytes,
        "sourceState": None if source is None else source.reason,
        "lastCheckTime": status.last_check_time and status.last_check_time.isoformat(),
        "nodes": None
        if seen.copies is None
        else {copy.node: str(copy.state) for copy in seen.copies},
        "problem": problem,
    }


def find_problem(seen: Observation) -> str | None:
    """What is not right, with its cause and cure; None if all is."""
    ready = seen.condition(Condition.READY)
    if ready is None or seen.status.observed_generation != seen.generation:
        return (
            "the operator has not looked at the present spec yet: if it stays, look at the "
            "operator's log"
        )
    if ready.status != "True":
        return f"{ready.reason}: {ready.message}"
    source = seen.condition(Condition.SOURCE_CURRENT)
    if source is not None and source.status != "True":
        return f"{source.reason}: {source.message}"
    return _find_overdue_check(seen) or _find_bad_copy(seen)


def _find_overdue_check(seen: Observation) -> str | None:
    checked_at = seen.status.last_check_time
    if checked_at is None:
        return None
    interval = seen.version.spec.source.recheck_interval
    allowed = 2 * max(parse_duration(interval), _RECORD_SECONDS)
    if (seen.now - checked_at).total_seconds() <= allowed:
        return None
    return (
        f"the source was last checked at {checked_at.isoformat()}, though recheckInterval is "
        f"{interval}: look whether an operator leads, and at its log"
    )


def _find_bad_copy(seen: Observation) -> str | None:
    copies = seen.copies or ()
    failed = [copy for copy in copies if copy.state == EntryState.FAILED]
    if failed:
        entry = failed[0].entry
        why = f"{entry.reason}: {entry.message}" if entry else "for no known reason"
        return f"{len(failed)} of {len(copies)} nodes failed, first {failed[0].node}: {why}"
    lost = [copy.node for copy in copies if copy.is_lost]
    if lost:
        which = f"{len(lost)} of {len(copies)} nodes lost, first {lost[0]}"
        return f"{which}: check the node and its agent's pod"
    wanted = seen.status.content_digest
    for copy in copies:
        held = copy.entry.content_digest if copy.entry else None
        if copy.state == EntryState.CACHED and wanted is not None and held != wanted:
            return f"node {copy.node} holds {held}, not {wanted}: look at its agent's log"
    return None


def _tell_source(seen: Observation) -> str:
    source = seen.condition(Condition.SOURCE_CURRENT)
    if source is not None:
        return f"{source.reason}: {source.message}"
    return "not looked at again: the content is pinned" if is_pinned(seen.version.spec) else "-"


def _tell_check(seen: Observation) -> str:
    interval = seen.version.spec.source.recheck_interval
    if is_pinned(seen.version.spec):
        return "none: the content is pinned"
    checked_at = seen.status.last_check_time
    when = checked_at.strftime("%Y-%m-%dT%H:%M:%SZ") if checked_at else "none yet"
    return f"{when} (every {interval})"


def _tell_nodes(seen: Observation) -> str:
    if seen.copies is None:
        count = seen.status.nodes.disk if seen.status.nodes else 0
        return f"{count} Cached (others unknown: you may not list cachenodes)"
    counted = Counter(copy.state for copy in seen.copies)
    return ", ".join(f"{counted[state]} {state}" for state in sorted(counted)) or "none"
