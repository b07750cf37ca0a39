"""Watches the pods with our label, and no others.

Not through kopf, which filters by label only after it has received every pod of the cluster.
"""

from __future__ import annotations

import logging
from contextlib import aclosing

from modelcache_api.names import LABEL_CACHE
from modelcache_kube import PODS, Change, KubeClient, KubeError
from modelcache_operator.adapters.parsing import ObservedKind, parse_object
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.adapters.watch_health import WatchHealth
from modelcache_operator.decide.world import ObjectKey, Uid

_log = logging.getLogger(__name__)


async def watch_pods(kube: KubeClient, cache: WatchCache, watches: WatchHealth) -> None:
    """Feed the watch cache for ever. Who taps the client's requests tells of openings."""

    def tell(error: KubeError) -> None:
        _log.warning("cannot watch pods: %s", error)
        watches.closed(PODS.plural)

    async with aclosing(kube.watch(PODS, label_selector=LABEL_CACHE, on_error=tell)) as events:
        async for event in events:
            if event.type is Change.SYNCED:
                continue
            metadata = event.object["metadata"]
            if event.type is Change.DELETED:
                key = ObjectKey(metadata["namespace"], metadata["name"])
                cache.forget(ObservedKind.PODS, key, Uid(metadata["uid"]))
                continue
            cache.observe(parse_object(ObservedKind.PODS, event.object))
