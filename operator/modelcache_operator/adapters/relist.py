"""Whole lists beside the watches: at the start, after each outage, and now and then.

kopf tells of no deletion that happened while its watch was down. What has vanished from a list is
forgotten here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from modelcache_api.names import LABEL_CACHE
from modelcache_kube import (
    CACHE_NODES,
    MODEL_CACHE_QUOTAS,
    MODEL_CACHES,
    MODEL_VERSIONS,
    NODES,
    PODS,
    KubeClient,
    KubeError,
    NotFound,
    Resource,
)
from modelcache_operator.adapters.parsing import ObservedKind, Raw, parse_object
from modelcache_operator.adapters.watch_cache import WatchCache
from modelcache_operator.decide.world import ObjectKey, Uid

_log = logging.getLogger(__name__)

# Users' objects last: what they refer to should be known by then.
_ORDER: Final[tuple[tuple[ObservedKind, Resource], ...]] = (
    (ObservedKind.NODES, NODES),
    (ObservedKind.CACHE_NODES, CACHE_NODES),
    (ObservedKind.QUOTAS, MODEL_CACHE_QUOTAS),
    (ObservedKind.MODEL_VERSIONS, MODEL_VERSIONS),
    (ObservedKind.MODEL_CACHES, MODEL_CACHES),
    (ObservedKind.PODS, PODS),
)
# All other pods are none of our business, and by far the most.
_SELECTORS: Final = {ObservedKind.PODS: LABEL_CACHE}
# A belt beside braces: costs a few megabytes per thousand nodes.
_EVERY_SECONDS: Final = 600.0
_RETRY_SECONDS: Final = 3.0
# Several signs of one outage ask for one list.
_SETTLE_SECONDS: Final = 1.0
_LIST_SECONDS: Final = 60.0
# Objects in memory at once as the API server spells them: a full CacheNode takes 150 kB so.
_CHUNK: Final = 200


class Relister:
    """Keeps the watch cache honest. `on_resources_back` is called when CRDs have come (back)."""

    def __init__(
        self, kube: KubeClient, cache: WatchCache, *, on_resources_back: Callable[[], None]
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._on_resources_back = on_resources_back
        self._asked = asyncio.Event()
        self._are_resources_missing = False

    @property
    def is_waiting_for_crds(self) -> bool:
        """True from the first list that found no CRD until all are listed again."""
        return self._are_resources_missing

    def ask(self) -> None:
        """Something may have been missed: list soon."""
        self._asked.set()

    async def run(self) -> None:
        """List when asked, and now and then. For ever."""
        while True:
            try:
                async with asyncio.timeout(_EVERY_SECONDS):
                    await self._asked.wait()
                await asyncio.sleep(_SETTLE_SECONDS)
            except TimeoutError:
                pass
            self._asked.clear()
            await self.list_all()

    async def list_all(self) -> None:
        """List everything once, however long that takes; says what it waits for."""
        for kind, resource in _ORDER:
            while not await self._list_one(kind, resource):  # noqa: ASYNC110 - it is a retry
                await asyncio.sleep(_RETRY_SECONDS)
        if self._are_resources_missing:
            self._are_resources_missing = False
            self._on_resources_back()

    async def _list_one(self, kind: ObservedKind, resource: Resource) -> bool:
        before = self._cache.snapshot(kind)
        listed: set[tuple[ObjectKey, Uid]] = set()
        pages = self._kube.list_pages(
            resource, label_selector=_SELECTORS.get(kind), chunk_size=_CHUNK
        )
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                async for page in pages:
                    listed |= self._take_in(kind, page)
        except NotFound:
            self._are_resources_missing = True
            name = f"{resource.plural}.{resource.group}"
            _log.warning("waiting for the CRD %s: apply the chart's crds", name)
            return False
        except (KubeError, TimeoutError) as error:
            _log.warning("cannot list %s: %s", resource.plural, error or "time-out")
            return False
        vanished = self._cache.take_list(kind, before, listed)
        if vanished:
            _log.info("%d %s vanished while no watch was open", vanished, resource.plural)
        return True

    def _take_in(self, kind: ObservedKind, page: Iterable[Raw]) -> set[tuple[ObjectKey, Uid]]:
        listed = set()
        for raw in page:
            self._cache.observe(parse_object(kind, raw))
            listed.add(_identify(raw))
        return listed


def _identify(raw: Raw) -> tuple[ObjectKey, Uid]:
    metadata = raw["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"]), Uid(metadata["uid"])
