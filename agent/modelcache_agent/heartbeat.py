"""The Lease, as long as the loop turns; and when to look at the Node's labels again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from modelcache_agent.memory import Memory
from modelcache_agent.ports.clock import Clock
from modelcache_agent.ports.cluster import Cluster, ClusterError
from modelcache_agent.ports.metrics import Metrics
from modelcache_agent.wakeup import Wakeup

_log = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 5.0
_SPREAD: Final = 0.1
# More than one interval and a slow request; the operator waits for five intervals by default.
_SILENT_RENEWALS: Final = 1.5


class Heartbeat:
    """Renews the Lease. After a silence the operator may have taken our labels away.

    So once renewing works again, also where we were suspended without noticing, and every
    `relabel_seconds`, the labels count as unknown and are applied once more; where nothing
    changed, the API server writes nothing.
    """

    def __init__(  # noqa: PLR0913 - everything it touches, handed in
        self,
        *,
        cluster: Cluster,
        memory: Memory,
        wakeup: Wakeup,
        clock: Clock,
        metrics: Metrics,
        is_alive: Callable[[], bool],
        lease_seconds: float,
        relabel_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._memory = memory
        self._wakeup = wakeup
        self._clock = clock
        self._metrics = metrics
        self._is_alive = is_alive
        self._lease_seconds = lease_seconds
        self._relabel_seconds = relabel_seconds

    async def run(self) -> None:
        """Until cancelled."""
        last_beat = relabelled = self._clock.monotonic()
        while True:
            succeeded = await self._beat()
            now = self._clock.monotonic()
            if succeeded:
                was_silent = now - last_beat > _SILENT_RENEWALS * self._lease_seconds
                if was_silent or now - relabelled >= self._relabel_seconds:
                    self._memory.node_labels = None
                    self._wakeup.set()
                    relabelled = now
                last_beat = now
            seconds = self._lease_seconds if succeeded else min(_RETRY_SECONDS, self._lease_seconds)
            await asyncio.sleep(seconds * (1.0 - _SPREAD * self._clock.jitter()))

    async def _beat(self) -> bool:
        if not self._is_alive():
            _log.error("the loop does not turn: the Lease is not renewed")
            return False
        try:
            await self._cluster.renew_lease()
        except ClusterError as error:
            self._metrics.count_write("lease", succeeded=False)
            _log.warning("renewing the Lease: %s", error)
            return False
        self._metrics.count_write("lease", succeeded=True)
        return True
