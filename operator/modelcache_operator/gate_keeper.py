"""Asks the queries of gates, on workers of its own: a server that hangs keeps nothing waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from modelcache_api.durations import parse_duration
from modelcache_operator.decide.promql_gate import NOT_CONFIGURED, Answer, find_asked_gate
from modelcache_operator.decide.world import ModelCacheView
from modelcache_operator.keys import Key, cache_key
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.measures import Measures
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.traffic_book import Asked
from modelcache_operator.workqueue import Requeue, WorkQueue


@dataclass(frozen=True, slots=True)
class GateKeeper:
    """`measures` is None where the administrator names no server. `queue` holds ModelCaches."""

    world: ObservedWorld
    memory: Memory
    measures: Measures | None
    clock: Clock
    queue: WorkQueue
    on_answer: Callable[[Key], None]

    def note(self, cache: ModelCacheView) -> None:
        """The ModelCache has been looked at: ask its query when that is due."""
        gate = find_asked_gate(cache.spec, cache.status.rollout)
        if gate is None:
            return
        found = self.memory.traffic.measured(cache.key, self.clock.monotonic())
        is_new = found is None or found.gate != gate
        due = 0.0 if found is None or is_new else parse_duration(gate.interval) - found.age
        self.queue.add(cache_key(cache.key), after_seconds=due)

    async def reconcile(self, key: Key) -> Requeue:
        """Ask once, and again after the gate's interval while it is wanted."""
        cache, book = self.world.model_cache(key.object_key), self.memory.traffic
        gate = None
        if cache is not None and not cache.is_deleted:
            gate = find_asked_gate(cache.spec, cache.status.rollout)
        if gate is None:
            book.asked.pop(key.object_key, None)
            return Requeue()
        answer: Answer = NOT_CONFIGURED
        if self.measures is not None:
            answer = await self.measures.ask(gate.query)
        book.asked[key.object_key] = Asked(gate, answer, self.clock.monotonic())
        self.on_answer(key)
        return Requeue(parse_duration(gate.interval))
