"""The leader's core on a cluster in memory: no API server, no clock, no tasks.

Writes go through the real watch cache, as answers of the API server do, and are counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from builders import (
    GIB,
    NOW,
    digest,
    make_cache,
    make_cache_node,
    make_entry,
    make_node,
    make_quota,
    make_version,
)
from modelcache_api.manifest import (
    ContentFile,
    SourceFile,
    make_content_manifest,
    make_source_manifest,
)
from modelcache_api.names import EntryState, Tier, Track
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CanaryPod, EntrySpec
from modelcache_kube import KubeError
from modelcache_operator.adapters.parsing import Observed, ObservedKind
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.changes import View
from modelcache_operator.core import CoreParts, CoreTimes, make_core
from modelcache_operator.decide.events import EventNote
from modelcache_operator.decide.liveness import LivenessLimits
from modelcache_operator.decide.quota import UNLIMITED
from modelcache_operator.decide.world import AgentLeaseView, NodeName, ObjectKey, Uid
from modelcache_operator.keys import Key
from modelcache_operator.ports.manifests import AdoptedContent

_MAX_STEPS = 200_000
_RETRY_SECONDS = 60.0
_KINDS = {
    "ModelVersionView": ObservedKind.MODEL_VERSIONS,
    "ModelCacheView": ObservedKind.MODEL_CACHES,
    "ModelCacheQuotaView": ObservedKind.QUOTAS,
    "CacheNodeView": ObservedKind.CACHE_NODES,
    "NodeView": ObservedKind.NODES,
    "PodView": ObservedKind.PODS,
}


class MemoryClock:
    """`offset` is what somebody has set the wall clock wrong by."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.offset = timedelta()

    def now(self):
        return NOW + timedelta(seconds=int(self.seconds)) + self.offset

    def monotonic(self) -> float:
        return self.seconds


class KeySet:
    """Stands in for the work queue: an ordered set. Delays are remembered, not waited for.

    `urgent` are all that were asked for as such, for tests to see; their order is the others'.
    """

    def __init__(self) -> None:
        self.keys: dict[Key, None] = {}
        self.later: dict[Key, float] = {}
        self.urgent: set[Key] = set()

    def add(self, key: Key, *, after_seconds: float = 0.0, is_urgent: bool = False) -> None:
        if is_urgent:
            self.urgent.add(key)
        if after_seconds <= 1.0:
            self.later.pop(key, None)
            self.keys[key] = None
        elif key not in self.keys:
            self.later[key] = min(after_seconds, self.later.get(key, after_seconds))

    def come_due(self) -> bool:
        """What waits for others is looked at now, in the order of its time; True if any did.

        What waits for a failure to pass stays.
        """
        due = {key: when for key, when in self.later.items() if when < _RETRY_SECONDS}
        for key in sorted(due, key=due.__getitem__):
            self.add(key)
        return bool(due)

    def pop(self) -> Key:
        key = next(iter(self.keys))
        del self.keys[key]
        return key


class MemorySources:
    def __init__(self) -> None:
        self.failures: dict[str, Exception] = {}
        self.listed: list[str] = []
        self.etag: str | None = None
        self.revision: str | None = None
        self.asked: list[str | None] = []

    async def resolve(self, version, revision=None):
        self.listed.append(version.key.name)
        self.asked.append(revision)
        if error := self.failures.get(version.key.name):
            raise error
        files = [SourceFile("model.bin", GIB, etag=self.etag or version.uid)]
        return make_source_manifest(files, revision or self.revision)


class MemoryManifests:
    def __init__(self) -> None:
        self.sources: dict[Uid, Any] = {}
        self.contents: dict[Uid, AdoptedContent] = {}

    async def put_source(self, uid, manifest):
        self.sources[uid] = manifest

    async def get_source(self, uid, digest):
        found = self.sources.get(uid)
        return found if found is not None and found.digest == digest else None

    async def get_content(self, uid):
        return self.contents.get(uid)

    def adopt(self, uid: Uid) -> str:
        manifest = make_content_manifest([ContentFile("model.bin", GIB, uid.encode().hex())])
        self.contents.setdefault(uid, AdoptedContent(manifest, digest("d")))
        return self.contents[uid].manifest.digest

    async def delete(self, uid):
        self.sources.pop(uid, None)
        self.contents.pop(uid, None)

    async def uids(self):
        return frozenset(self.sources) | frozenset(self.contents)


class MemoryCore:
    """One leader. `settle` works off every key; agents are played by `agents_act`."""

    def __init__(self, world: MemoryWorld) -> None:
        self.world = world
        self.cache = world.cache
        self.clock = world.clock
        self.queue, self.resolve_queue, self.recheck_queue = KeySet(), KeySet(), KeySet()
        self.gate_queue = KeySet()
        self.missed_looks: list[int] = []
        parts = CoreParts(
            self.cache,
            self.clock,
            world,
            world,
            world.sources,
            world.manifests,
            self.queue,
            self.resolve_queue,
            self.recheck_queue,
            self.gate_queue,
            lambda _low, _high: 1.0,
            routes=world.routes,
            measures=world.measures,
            default_quota=lambda: world.default_quota,
            on_missed_looks=self.missed_looks.append,
        )
        core = make_core(parts, CoreTimes(LivenessLimits.of(300), 30.0, 300.0))
        self.memory, self.router = core.memory, core.router
        self.resolver, self.reconciler = core.resolver, core.reconciler
        self.rechecker, self.gates = core.rechecker, core.gates
        self.agents = core.memory.agents
        self.runs: Counter[str] = Counter()
        # By key the seconds after which it asked to be looked at again; that is not waited for.
        self.asked_again: dict[Key, float | None] = {}

    def begin(self) -> None:
        """A term of leadership begins, as in `leading.Term`."""
        self.memory.begin_term(self.cache)
        self.rechecker.begin_term()
        self.cache.subscribe(self.router.on_change)
        self.list_leases()
        self.router.look_at_everything()
        self.settle()

    def end(self) -> None:
        self.cache.unsubscribe(self.router.on_change)

    def list_leases(self) -> None:
        self.router.on_liveness(self.agents.note(self.world.leases.values()))

    def settle(self) -> None:
        """Work off all keys, with the agents acting in between, until nothing moves."""
        asyncio.run(self._settle())

    async def _settle(self) -> None:
        for _ in range(_MAX_STEPS):
            if self.queue.keys:
                key = self.queue.pop()
                self.runs[key.kind] += 1
                try:
                    again = await self.reconciler.reconcile(key)
                    self.asked_again[key] = again.after_seconds
                except KubeError:
                    self.queue.add(key, after_seconds=_RETRY_SECONDS)
            elif self.resolve_queue.keys:
                await self.resolver.reconcile(self.resolve_queue.pop())
            elif self.recheck_queue.keys:
                await self.rechecker.reconcile(self.recheck_queue.pop())
            elif self.gate_queue.keys:
                await self.gates.reconcile(self.gate_queue.pop())
            elif not self.world.agents_act() and not self.queue.come_due():
                return
        raise AssertionError(f"it never settles; {self.queue.keys}")


class MemoryWorld:
    """What an API server would hold. Also the writer and the sink of events, counted."""

    def __init__(self) -> None:
        self.cache = WatchCache()
        self.clock = MemoryClock()
        self.sources = MemorySources()
        self.manifests = MemoryManifests()
        self.routes: Any = None
        self.measures: Any = None
        self.leases: dict[NodeName, AgentLeaseView] = {}
        self.writes: Counter[str] = Counter()
        self.events: list[EventNote] = []
        self.lifted: dict[str, str | None] = {}
        self.states: dict[tuple[str, str], EntryState] = {}
        self.reasons: dict[tuple[str, str], str] = {}
        self.host: dict[str, int] = {}
        self.gpu: dict[str, int] = {}
        self.pressure: dict[str, str] = {}
        self.slow: set[tuple[str, str]] = set()
        self.mounts: dict[tuple[str, str], int] = {}
        self.shown: dict[Uid, Uid] = {}
        self.capacity = 100 * GIB
        self.default_quota = UNLIMITED
        self._version = 0
        for kind in ObservedKind:
            self.cache.take_list(kind, {}, set())

    def show(self, view: View) -> None:
        """The watch tells of an object."""
        self._version += 1
        key = getattr(view, "key", None) or ObjectKey("", view.name)
        self.cache.observe(
            Observed(_KINDS[type(view).__name__], key, view.uid, self._version, view)
        )

    def obscure(self, kind: ObservedKind, view: View) -> None:
        """The watch tells of an object that holds what a newer release has invented."""
        self._version += 1
        key = getattr(view, "key", None) or ObjectKey("", view.name)
        self.cache.observe(Observed(kind, key, view.uid, self._version, None, "of tomorrow"))

    def hide(self, view: View) -> None:
        """The watch tells of a deletion."""
        key = getattr(view, "key", None) or ObjectKey("", view.name)
        self.cache.forget(_KINDS[type(view).__name__], key, view.uid)

    # --- what users and kubelets do -------------------------------------------------------

    def add_node(self, name: str, *, agent: bool = True, **fields: Any) -> None:
        self.show(make_node(name, **fields))
        if agent:
            self.renew(name)

    def remove_node(self, name: str) -> None:
        node = self.cache.node(NodeName(name))
        assert node is not None
        self.hide(node)
        self.leases.pop(node.name, None)

    def renew(self, *names: str) -> None:
        for name in names:
            node = self.cache.node(NodeName(name))
            assert node is not None
            self.leases[node.name] = AgentLeaseView(
                node.name, node.uid, NOW + timedelta(seconds=self.clock.seconds)
            )

    def renew_all(self, *, but: Iterable[str] = ()) -> None:
        self.renew(*(name for name in self.leases if name not in but))

    def add_version(self, name: str = "m1", **fields: Any) -> None:
        self.show(make_version(name, **{"uid": f"uid-{name}", "resolved": False, **fields}))

    def add_cache(self, name: str = "c1", **fields: Any) -> None:
        self.show(make_cache(name, **fields))

    def add_quota(self, name: str = "q1", **fields: Any) -> None:
        self.show(make_quota(name, **fields))

    # --- what agents do -------------------------------------------------------------------

    def agents_act(self) -> bool:
        """Each living agent reports what its CacheNode asks for; True if anything was new."""
        acted = False
        for seen in list(self.cache.cache_nodes()):
            if seen.name not in self.leases:
                continue
            entries = tuple(self._report(seen.name, entry) for entry in seen.spec.entries)
            tiers = make_cache_node(
                seen.name,
                capacity=self.capacity,
                host=self.host.get(seen.name),
                gpu=self.gpu.get(seen.name),
            ).status.tiers
            disk = tiers[0].model_copy(update={"pressure": self.pressure.get(seen.name)})
            tiers = (disk, *tiers[1:])
            pods = self._list_canary_pods(seen)
            told = {"entries": entries, "tiers": tiers, "canary_pods": pods}
            status = seen.status.model_copy(update=told)
            if status != seen.status:
                self.show(replace(seen, status=status))
                acted = True
        return acted

    def _list_canary_pods(self, seen) -> tuple[CanaryPod, ...]:
        """A pod's volume shows the canary that is verified at first, and keeps it."""
        canaries = {ObjectKey(ref.namespace, ref.name): ref.canary_uid for ref in seen.spec.caches}
        pods = [pod for pod in self.cache.pods_on(seen.name) if pod.track == Track.CANARY]
        for pod in pods:
            uid = canaries.get(pod.cache)
            if uid and self.states.get((seen.name, uid), EntryState.CACHED) is EntryState.CACHED:
                self.shown.setdefault(pod.uid, Uid(uid))
        shown = sorted((pod.uid, self.shown[pod.uid]) for pod in pods if pod.uid in self.shown)
        return tuple(CanaryPod(uid=pod, version=version) for pod, version in shown)

    def _report(self, node: str, entry: EntrySpec):
        uid = entry.uid
        state = self.states.get((node, uid), EntryState.CACHED)
        if state is not EntryState.CACHED:
            reason = self.reasons.get((node, uid), "NotAModel" if state == "Failed" else "")
            return make_entry(uid, state, reason=reason)
        tier = Tier.DISK if (node, uid) in self.slow else entry.tier
        mounts = self.mounts.get((node, uid))
        content = self.manifests.adopt(Uid(uid))
        return make_entry(uid, content_digest=content, tier=tier, mounts=mounts)

    # --- ClusterWriter and EventSink ------------------------------------------------------

    def publish(self, notes):
        self.events.extend(notes)

    async def put_version_status(self, version, status):
        return self._put("version status", self.cache.model_version(version.uid), version, status)

    async def put_cache_status(self, cache, status):
        return self._put("cache status", self.cache.model_cache(cache.key), cache, status)

    async def put_quota_status(self, quota, status):
        return self._put("quota status", self.cache.quota(quota.key), quota, status)

    def _put(self, what, present, view, status):
        if view.status == status or present is None or present.uid != view.uid:
            return False
        self.writes[what] += 1
        self.show(replace(present, status=status))
        return True

    async def put_cache_node(self, node, seen, spec: CacheNodeSpec):
        if seen is not None and seen.spec == spec:
            return False
        self.writes["cache node"] += 1
        present = self.cache.cache_node(node.name)
        if present is None:
            present = make_cache_node(node.name, capacity=None)
            present = replace(present, uid=Uid(f"cn-{node.name}-{self._version}"))
        self.show(replace(present, spec=spec))
        return True

    async def put_node_conditions(self, cache_node, conditions):
        present = self.cache.cache_node(cache_node.name)
        if present is None or present.status.conditions == tuple(conditions):
            return False
        self.writes["node condition"] += 1
        status = present.status.model_copy(update={"conditions": tuple(conditions)})
        self.show(replace(present, status=status))
        return True

    async def read_agent_lease(self, node):
        return self.leases.get(node)

    async def remove_node_labels(self, node, keys):
        self.writes["label removal"] += 1
        present = self.cache.node(node.name)
        assert present is not None
        kept = {key: value for key, value in present.labels.items() if key not in keys}
        self.show(replace(present, labels=kept))

    async def lift_gate(self, pod, require):
        self.writes["gate"] += 1
        self.show(replace(pod, is_gated=False, constraints=None))
        self.lifted[pod.key.name] = require
        return True

    async def lift_taint(self, node):
        self.writes["taint"] += 1
        present = self.cache.node(node.name)
        assert present is not None
        kept = tuple(t for t in present.taints if t.key != "modelcache.io/agent-not-ready")
        self.show(replace(present, taints=kept))
        return True

    async def delete_cache_node(self, cache_node):
        self.writes["cache node deletion"] += 1
        self.hide(cache_node)

    async def delete_agent_lease(self, node):
        self.writes["lease deletion"] += 1
        self.leases.pop(node, None)
