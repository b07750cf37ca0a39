"""Brings the status of one ModelCacheQuota up to date."""

from __future__ import annotations

from dataclasses import dataclass

from modelcache_operator.decide.quota import is_over, read_limits
from modelcache_operator.decide.quota_status import make_quota_status, quota_events
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.cluster import ClusterWriter
from modelcache_operator.ports.telling import EventSink
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.quotas import Quotas
from modelcache_operator.routing import Router
from modelcache_operator.workqueue import Requeue


@dataclass(frozen=True, slots=True)
class QuotaReconciler:
    """Reports; what is refused is decided where it is placed."""

    world: ObservedWorld
    memory: Memory
    router: Router
    writer: ClusterWriter
    events: EventSink
    clock: Clock
    quotas: Quotas

    async def reconcile(self, key: ObjectKey) -> Requeue:
        """Safe to call at any time, any number of times. Without a name it is the default quota."""
        quota = self.world.quota(key)
        self._tell_nodes(key.namespace)
        if quota is None or quota.is_deleted:
            return Requeue()
        limits = read_limits(quota.spec, quota.key.name)
        charged = self.quotas.usage(key.namespace)
        caches = [one for one in self.world.model_caches() if one.key.namespace == key.namespace]
        status = make_quota_status(quota, limits, charged, caches, self.clock.now())
        if await self.writer.put_quota_status(quota, status):
            self.events.publish(quota_events(quota, status))
        return Requeue()

    def _tell_nodes(self, namespace: str) -> None:
        """Entries say whether their namespace uses too much; pods that were refused may go on."""
        assignments, limits = self.memory.assignments, self.quotas.limits_of(namespace)
        over = bool(limits.hard) and is_over(limits, self.quotas.usage(namespace))
        if over != (namespace in self.memory.over_quota):
            (self.memory.over_quota.add if over else self.memory.over_quota.discard)(namespace)
            found = (assignments.of(cache) for cache in assignments.in_namespace(namespace))
            for one in found:
                if one is not None:
                    self.router.on_nodes_reassigned(one.everywhere, frees_room=False)
        if not over:
            nodes = self.memory.demands.refused_nodes(namespace)
            self.router.on_nodes_reassigned(nodes, frees_room=False)
