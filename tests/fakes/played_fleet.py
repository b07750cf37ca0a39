"""Many agents in one process: they renew Leases, take notice of entries, report and label.

They hold no bytes. What they say of a content is what the operator's own store has adopted, so
that the operator cannot tell them from real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from modelcache_api import names
from modelcache_api.manifest import ContentFile, make_content_manifest
from modelcache_kube import (
    CACHE_NODES,
    NODES,
    Change,
    KubeClient,
    KubeError,
    LeaseHeartbeat,
)
from modelcache_operator.adapters.manifest_store import ConfigMapManifests
from modelcache_operator.decide.world import Uid

GIB = 1024**3


@dataclass
class PlayedNode:
    """What one played agent is told to be, and what it holds."""

    name: str
    uid: str
    capacity_bytes: int = 100 * GIB
    # None: an agent that knows no tier but the disk.
    host_bytes: int | None = None
    # Pods of a canary's track, as rows of the status.
    canary_pods: list[dict[str, str]] = field(default_factory=list)
    is_slow: bool = False
    is_alive: bool = True
    version: str = "played"
    # uid of a version -> (state, reason, message), in place of Cached.
    verdicts: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    default_verdict: tuple[str, str, str] = ("Cached", "Cached", "")
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    written: dict[str, Any] = field(default_factory=dict)
    # None: what the Node carries is not known.
    labels: set[str] | None = field(default_factory=set)
    # Labels of what it holds: whoever takes one of these off is not the agent.
    vouched: frozenset[str] = frozenset()
    spec: dict[str, Any] = field(default_factory=dict)
    # UID of the CacheNode that the spec is of: the one of a rebuilt node is another.
    record: str = ""
    acting: asyncio.Lock = field(default_factory=asyncio.Lock)


class PlayedFleet:
    """Agents of many nodes over one connection and one watch."""

    def __init__(
        self,
        kube: KubeClient,
        namespace: str = "modelcache-system",
        *,
        renew_seconds: float = 5,
    ) -> None:
        self.kube = kube
        self.namespace = namespace
        self._renew_seconds = renew_seconds
        self.nodes: dict[str, PlayedNode] = {}
        self.manifests = ConfigMapManifests(kube, namespace)
        self.errors: list[str] = []
        # (version uid, node) of every download begun: an agent begins where it holds nothing.
        self.downloads: list[tuple[str, str]] = []
        self._adopting: dict[Uid, asyncio.Lock] = {}
        self._adopted: dict[Uid, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._dirty: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._watch(), name="fleet-watch")]
        self._tasks += [asyncio.create_task(self._work(), name="fleet-work") for _ in range(8)]
        self._tasks.append(asyncio.create_task(self._renew_for_ever(), name="fleet-leases"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def add(self, *node_names: str, **options: Any) -> None:
        """Start agents on nodes that exist."""

        async def start(name: str) -> None:
            node = await self.kube.get(NODES, name)
            assert node is not None, name
            played = PlayedNode(name, node["metadata"]["uid"], **options)
            self.nodes[name] = played
            await self._renew(played)
            # The operator may have been quicker: the watch told of it before the agent was there.
            found = await self.kube.get(CACHE_NODES, name)
            if found is not None and found["spec"]["nodeUid"] == played.uid and not played.spec:
                self._take(played, found)

        await _bounded(start, node_names)

    def assert_alive(self) -> None:
        """Raise what has ended a part of it: silence would look like agents that are slow."""
        for task in self._tasks:
            if task.done():
                raise AssertionError(f"{task.get_name()} has ended") from task.exception()

    async def renew(self) -> None:
        """Every living agent renews its Lease."""
        living = [node.name for node in self.nodes.values() if node.is_alive]
        await _bounded(lambda name: self._renew(self.nodes[name]), living)

    def kill(self, name: str) -> None:
        """The agent falls silent; its labels and its last words stay."""
        self.nodes[name].is_alive = False

    async def revive(self, name: str) -> None:
        """The agent is heard again. After a silence its labels may have been taken off."""
        self.nodes[name].is_alive = True
        self.nodes[name].labels = None
        await self._renew(self.nodes[name])
        self._mark(name)

    async def restart(self, name: str) -> None:
        """Another process finds the same bytes, and knows nothing of what was written."""
        self.nodes[name].written = {}
        await self.revive(name)

    def forget(self, name: str) -> None:
        """The node is gone for good."""
        self.nodes.pop(name, None)

    def change(self, name: str, **options: Any) -> None:
        """Alter what the agent is told to be, and let it report."""
        for option, value in options.items():
            setattr(self.nodes[name], option, value)
        self._mark(name)

    async def _renew(self, node: PlayedNode) -> None:
        heartbeat = LeaseHeartbeat(
            self.kube,
            self.namespace,
            names.AGENT_LEASE_PREFIX + node.name,
            node.name,
            120,
            names.MANAGER_AGENT,
            labels={names.LABEL_AGENT_LEASE: "true"},
            owner={"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid},
        )
        await heartbeat.renew()

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._renew_seconds)
            with contextlib.suppress(KubeError):
                await self.renew()
                await self._look_at_labels()

    async def _look_at_labels(self) -> None:
        """As real agents: what somebody else has taken off or put on is put right, in time."""
        for item in (await self.kube.list(NODES)).items:
            node = self.nodes.get(item["metadata"]["name"])
            is_right = node is None or node.labels in (None, _own_labels(item))
            if node is not None and node.is_alive and not is_right:
                async with node.acting:
                    node.labels = None
                self._mark(node.name)

    async def _watch(self) -> None:
        async for event in self.kube.watch(CACHE_NODES):
            if event.type is Change.SYNCED:
                continue
            name = event.object["metadata"]["name"]
            if name not in self.nodes:
                continue
            node = self.nodes[name]
            if event.type is Change.DELETED:
                node.spec, node.record = {}, ""
            elif node.spec != event.object["spec"] or not self._has_written(node):
                self._take(node, event.object)

    def _take(self, node: PlayedNode, found: dict[str, Any]) -> None:
        node.spec, node.record = found["spec"], found["metadata"]["uid"]
        self._mark(node.name)

    @staticmethod
    def _has_written(node: PlayedNode) -> bool:
        return bool(node.written) and node.written["record"] == node.record

    def _mark(self, name: str) -> None:
        if name not in self._queued:
            self._queued.add(name)
            self._dirty.put_nowait(name)

    async def _work(self) -> None:
        while True:
            name = await self._dirty.get()
            self._queued.discard(name)
            node = self.nodes.get(name)
            if node is None or not node.is_alive or not node.spec:
                continue
            try:
                # One at a time: an older look must not take back what a newer one has labelled.
                async with node.acting:
                    await self._act(node)
            except KubeError as error:
                self.errors.append(f"{name}: {error}")
                await asyncio.sleep(0.5)
                self._mark(name)

    async def _act(self, node: PlayedNode) -> None:
        wanted = {entry["uid"]: entry for entry in node.spec.get("entries", ())}
        keys = set()
        entries = {}
        for uid, entry in wanted.items():
            if uid not in node.held:
                self.downloads.append((uid, node.name))
            entries[uid] = await self._report(node, entry)
            if entries[uid]["state"] == "Cached" and entry.get("labelKey"):
                keys.add(entry["labelKey"])
        node.vouched = frozenset(keys)
        if node.labels is None:
            found = await self.kube.get(NODES, node.name)
            node.labels = _own_labels(found) if found is not None else set()
        # As a real agent: a label goes before its bytes, and comes after them.
        await self._label(node, keys & node.labels)
        node.held = entries
        await self._write_status(node)
        await self._label(node, keys)

    async def _report(self, node: PlayedNode, entry: dict[str, Any]) -> dict[str, Any]:
        uid = entry["uid"]
        state, reason, message = node.verdicts.get(uid, node.default_verdict)
        report = {"uid": uid, "state": state, "reason": reason, "message": message}
        if state == "Cached":
            digest = entry.get("contentDigest") or await self._adopt(entry)
            if digest is None:
                return {"uid": uid, "state": "Pending", "reason": "Waiting", "message": ""}
            tier = "Disk" if node.is_slow else entry.get("tier", "Disk")
            report |= {"contentDigest": digest, "tier": tier, "progressPercent": 100}
        return report

    async def _adopt(self, entry: dict[str, Any]) -> str | None:
        """Propose what these bytes could be; the first one to say so decides for all."""
        uid = Uid(entry["uid"])
        async with self._adopting.setdefault(uid, asyncio.Lock()):
            if uid not in self._adopted:
                proposed = await self._propose(uid, entry)
                if proposed is None:
                    return None
                self._adopted[uid] = proposed
        return self._adopted[uid]

    async def _propose(self, uid: Uid, entry: dict[str, Any]) -> str | None:
        """None of a version that was deleted meanwhile: the entry goes next."""
        source = await self.manifests.get_source(uid, entry["sourceDigest"])
        if source is None:
            return None
        files = [
            ContentFile(file.path, file.size_bytes, hashlib.sha256(file.path.encode()).hexdigest())
            for file in source.files
        ]
        adopted = await self.manifests.adopt_content(uid, make_content_manifest(files))
        return adopted.manifest.digest

    async def _write_status(self, node: PlayedNode) -> None:
        ready = sum(entry["state"] == "Cached" for entry in node.held.values())
        status = {
            "agentVersion": node.version,
            "tiers": [
                {
                    "name": tier,
                    "capacityBytes": capacity,
                    "usedBytes": 0,
                    "reservedBytes": 0,
                    "pendingReleaseBytes": 0,
                }
                for tier, capacity in (("Disk", node.capacity_bytes), ("Host", node.host_bytes))
                if capacity is not None
            ],
            "entries": list(node.held.values()),
            "models": ready,
            "failed": len(node.held) - ready,
            "canaryPods": list(node.canary_pods),
        }
        written = {"record": node.record, "status": status}
        if written == node.written:
            return
        await self.kube.apply(
            CACHE_NODES,
            {"metadata": {"name": node.name, "uid": node.record}, "status": status},
            field_manager=names.MANAGER_AGENT,
            subresource="status",
        )
        node.written = written

    async def _label(self, node: PlayedNode, keys: set[str]) -> None:
        if keys == node.labels:
            return
        metadata = {"name": node.name, "uid": node.uid, "labels": dict.fromkeys(keys, "disk")}
        await self.kube.apply(
            NODES, {"metadata": metadata}, field_manager=names.MANAGER_AGENT_LABELS
        )
        node.labels = set(keys)


def _own_labels(node: dict[str, Any]) -> set[str]:
    labels = node["metadata"].get("labels") or {}
    return {key for key in labels if key.startswith(names.NODE_LABEL_PREFIX)}


async def _bounded(act: Callable[[str], Any], items: Iterable[str], at_once: int = 16) -> None:
    slots = asyncio.Semaphore(at_once)

    async def run(item: str) -> None:
        async with slots:
            await act(item)

    await asyncio.gather(*(run(item) for item in items))
