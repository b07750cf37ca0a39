"""The leader's core put together from whatever stands behind its ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from modelcache_operator.agents import Agents
from modelcache_operator.assignments import Assignments
from modelcache_operator.books import NodeBooks
from modelcache_operator.decide.liveness import LivenessLimits
from modelcache_operator.decide.quota import UNLIMITED, Limits
from modelcache_operator.gate_keeper import GateKeeper
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.cluster import ClusterWriter
from modelcache_operator.ports.manifests import Manifests
from modelcache_operator.ports.measures import Measures
from modelcache_operator.ports.routes import Routes
from modelcache_operator.ports.sources import Sources
from modelcache_operator.ports.telling import EventSink
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.quotas import Quotas
from modelcache_operator.rechecking import Rechecker
from modelcache_operator.reconcile import Reconciler
from modelcache_operator.reconcilers.caches import CacheReconciler
from modelcache_operator.reconcilers.nodes import NodeReconciler
from modelcache_operator.reconcilers.orphans import OrphanSweep
from modelcache_operator.reconcilers.pods import PodReconciler
from modelcache_operator.reconcilers.quotas import QuotaReconciler
from modelcache_operator.reconcilers.routes import RouteReconciler
from modelcache_operator.reconcilers.taints import TaintWarden
from modelcache_operator.reconcilers.versions import VersionReconciler
from modelcache_operator.resolving import Resolver
from modelcache_operator.rolling import Roller
from modelcache_operator.routing import Adder, Router
from modelcache_operator.sources.partial.loading import PartLoader
from modelcache_operator.stored_times import StoredTimes
from modelcache_operator.workqueue import WorkQueue


@dataclass(frozen=True, slots=True)
class CoreParts:
    """What the core needs. The last three queues hold versions to be listed, and gates to be asked.

    `routes` and `measures` are None where the administrator has not set them up.
    `default_quota` holds for namespaces without a ModelCacheQuota.
    """

    world: ObservedWorld
    clock: Clock
    writer: ClusterWriter
    events: EventSink
    sources: Sources
    manifests: Manifests
    queue: Adder
    resolve_queue: WorkQueue
    recheck_queue: WorkQueue
    gate_queue: WorkQueue
    uniform: Callable[[float, float], float]
    routes: Routes | None = None
    measures: Measures | None = None
    default_quota: Callable[[], Limits] = field(default=lambda: UNLIMITED)
    on_missed_looks: Callable[[int], None] = field(default=lambda _looks: None)


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """How long agents may be silent, gated pods may wait, and fresh nodes may be kept free."""

    liveness: LivenessLimits
    gate_timeout_seconds: float
    node_ready_timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Core:
    """Memory, and the parts that act on it."""

    memory: Memory
    router: Router
    resolver: Resolver
    rechecker: Rechecker
    gates: GateKeeper
    reconciler: Reconciler


def make_core(parts: CoreParts, times: CoreTimes) -> Core:
    """The core, with an empty memory."""
    world, clock, writer, events = parts.world, parts.clock, parts.writer, parts.events
    assignments, agents = Assignments(), Agents(world, clock, times.liveness)
    memory = Memory(assignments, agents, NodeBooks(world, agents, assignments))
    router = Router(world, memory, parts.queue)
    resolver = Resolver(
        world,
        parts.sources,
        PartLoader(parts.sources),
        parts.manifests,
        clock,
        parts.resolve_queue,
        parts.uniform,
        parts.queue.add,
    )
    rechecker = Rechecker(
        world,
        parts.sources,
        parts.manifests,
        clock,
        parts.recheck_queue,
        parts.uniform,
        parts.queue.add,
        parts.on_missed_looks,
    )
    gates = GateKeeper(
        world, memory, parts.measures, clock, parts.gate_queue, on_answer=router.on_gate
    )
    quotas = Quotas(world, memory, parts.default_quota)
    roller = Roller(world, memory, clock, StoredTimes(clock), quotas)
    taints = TaintWarden(world, memory, writer, clock, times.node_ready_timeout_seconds)
    reconciler = Reconciler(
        VersionReconciler(
            world, memory, writer, events, clock, resolver, rechecker, parts.manifests
        ),
        CacheReconciler(world, memory, router, writer, events, clock, roller, gates, quotas),
        NodeReconciler(world, memory, router, writer, events, clock, taints, quotas),
        OrphanSweep(world, parts.manifests),
        PodReconciler(world, memory, writer, events, clock, times.gate_timeout_seconds),
        RouteReconciler(world, memory, parts.routes, clock, parts.queue.add),
        QuotaReconciler(world, memory, router, writer, events, clock, quotas),
    )
    return Core(memory, router, resolver, rechecker, gates, reconciler)
