"""Lists the agents' Leases: a watch would bring one event per node and minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from modelcache_api.names import LABEL_AGENT_LEASE
from modelcache_kube import LEASES, KubeClient, KubeError
from modelcache_operator.adapters.parsing import parse_agent_lease
from modelcache_operator.decide.world import AgentLeaseView

_log = logging.getLogger(__name__)
# A list of a thousand Leases takes well under a second.
_LIST_SECONDS: Final = 20.0


class AgentLeaseLister:
    """Calls `on_leases` after each list that succeeded."""

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        *,
        interval_seconds: float,
        on_leases: Callable[[tuple[AgentLeaseView, ...]], None],
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._interval_seconds = interval_seconds
        self._on_leases = on_leases
        self._is_failing = False

    async def run(self) -> None:
        """List for ever. A failure is told once, and followed by the next list."""
        while True:
            await self._list_once()
            await asyncio.sleep(self._interval_seconds)

    async def _list_once(self) -> None:
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                listed = await self._kube.list(
                    LEASES, self._namespace, label_selector=LABEL_AGENT_LEASE
                )
        except (KubeError, TimeoutError) as error:
            if not self._is_failing:
                _log.warning("cannot list the agents' Leases: %s", error or "time-out")
            self._is_failing = True
            return
        self._is_failing = False
        leases = (parse_agent_lease(raw) for raw in listed.items)
        self._on_leases(tuple(lease for lease in leases if lease is not None))
