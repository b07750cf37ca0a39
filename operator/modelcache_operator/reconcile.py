"""Sends each key to whoever knows what to do with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from modelcache_operator.decide.world import NodeName
from modelcache_operator.keys import Key, KeyKind
from modelcache_operator.reconcilers.caches import CacheReconciler
from modelcache_operator.reconcilers.nodes import NodeReconciler
from modelcache_operator.reconcilers.orphans import OrphanSweep
from modelcache_operator.reconcilers.pods import PodReconciler
from modelcache_operator.reconcilers.quotas import QuotaReconciler
from modelcache_operator.reconcilers.routes import RouteReconciler
from modelcache_operator.reconcilers.versions import VersionReconciler
from modelcache_operator.workqueue import Requeue


@dataclass(frozen=True, slots=True)
class Reconciler:
    """The leader's work, one key at a time. Every step may be cut off and done again."""

    versions: VersionReconciler
    caches: CacheReconciler
    nodes: NodeReconciler
    orphans: OrphanSweep
    pods: PodReconciler
    routes: RouteReconciler
    quotas: QuotaReconciler

    async def reconcile(self, key: Key) -> Requeue:  # noqa: PLR0911 - one for each kind of key
        """Bring the thing behind the key closer to what is wanted."""
        match key.kind:
            case KeyKind.VERSION:
                return await self.versions.reconcile(key.object_key)
            case KeyKind.CACHE:
                return await self.caches.reconcile(key.object_key)
            case KeyKind.QUOTA:
                return await self.quotas.reconcile(key.object_key)
            case KeyKind.NODE:
                return await self.nodes.reconcile(NodeName(key.name))
            case KeyKind.POD:
                return await self.pods.reconcile(key.object_key)
            case KeyKind.ROUTE:
                return await self.routes.reconcile(key.object_key)
            case KeyKind.SWEEP:
                self.versions.resolver.forget_gone()
                self.versions.rechecker.forget_gone()
                return await self.orphans.reconcile()
        assert_never(key.kind)
