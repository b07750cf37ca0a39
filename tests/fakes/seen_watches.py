"""WatchHealth with a clock of the test's, that also shows which watches are open."""

from __future__ import annotations

from collections.abc import Iterable

from modelcache_operator.adapters.watch_health import WatchHealth

OF_KOPF = frozenset({"modelversions", "modelcaches", "modelcachequotas", "cachenodes", "nodes"})


class SeenWatches(WatchHealth):
    def __init__(self, resources: Iterable[str] = OF_KOPF) -> None:
        self.now = 0.0
        self.open: set[str] = set()
        super().__init__(lambda: self.now, resources)
        self.begin()

    def opened(self, resource: str) -> None:
        super().opened(resource)
        self.open.add(resource)

    def closed(self, resource: str) -> None:
        super().closed(resource)
        self.open.discard(resource)
