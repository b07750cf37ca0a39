"""One term of leadership: everything that only the leader does, from the first look to the last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from modelcache_operator.changes import Listener
from modelcache_operator.decide.world import AgentLeaseView
from modelcache_operator.gate_keeper import GateKeeper
from modelcache_operator.keys import node_key
from modelcache_operator.memory import Memory
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.rechecking import Rechecker
from modelcache_operator.reconcile import Reconciler
from modelcache_operator.resolving import Resolver
from modelcache_operator.routing import Router
from modelcache_operator.workqueue import WorkQueue

_log = logging.getLogger(__name__)

# Repairs what somebody changed behind our back, without a single request where nothing differs.
_LOOK_AGAIN_SECONDS: Final = 600.0
# Listings that run at once: each is a connection and up to 10,000 files in memory.
_RESOLVERS: Final = 4
_RECHECKERS: Final = 4
# Questions to the server of metrics at once.
_GATES: Final = 2


@dataclass(frozen=True, slots=True)
class Term:
    """The leader's work. `run` may be called again for a later term."""

    world: ObservedWorld
    memory: Memory
    queue: WorkQueue
    router: Router
    reconciler: Reconciler
    resolver: Resolver
    rechecker: Rechecker
    gates: GateKeeper
    workers: int
    list_everything: Callable[[], Awaitable[None]]
    list_leases: Callable[[], Awaitable[None]]
    tell_events: Callable[[], Awaitable[None]]
    subscribe: Callable[[Listener], None]
    unsubscribe: Callable[[Listener], None]
    _leases_known: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Work until cancelled; then the workers stop where they are."""
        _log.info("leading: reading back what was assigned")
        # What another leader wrote a moment ago must be seen before anything is decided.
        await self.list_everything()
        self.memory.begin_term(self.world)
        self.rechecker.begin_term()
        self._leases_known.clear()
        self.subscribe(self.router.on_change)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_run(self.list_leases), name="lease-list")
                group.create_task(self._work(), name="work-queue")
                group.create_task(self._look_again(), name="look-again")
                group.create_task(_run(self.tell_events), name="events")
        finally:
            self.unsubscribe(self.router.on_change)
            self.queue.clear()
            self.resolver.queue.clear()
            self.rechecker.queue.clear()
            self.gates.queue.clear()
            _log.info("not leading any more")

    def on_leases(self, leases: tuple[AgentLeaseView, ...]) -> None:
        """One list of the agents' Leases has arrived. The first one opens the work."""
        agents = self.memory.agents
        is_first = not agents.is_known
        changed = agents.note(leases)
        if is_first:
            self.memory.books.reset()
            self.router.look_at_everything()
            self._leases_known.set()
            return
        self.router.on_liveness(changed)
        for name in agents.without_node():
            self.queue.add(node_key(name), after_seconds=_LOOK_AGAIN_SECONDS / 10)

    async def _work(self) -> None:
        # Before the agents are known, every copy would count as lost.
        await self._leases_known.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(self.reconciler.reconcile, self.workers))
            group.create_task(self.resolver.queue.run(self.resolver.reconcile, _RESOLVERS))
            group.create_task(self.rechecker.queue.run(self.rechecker.reconcile, _RECHECKERS))
            group.create_task(self.gates.queue.run(self.gates.reconcile, _GATES))

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            if self.memory.agents.is_known:
                self.router.look_at_everything()


async def _run(act: Callable[[], Awaitable[None]]) -> None:
    await act()
