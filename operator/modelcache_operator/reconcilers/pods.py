"""Lets one gated pod through when its time has come; tells a pod whose ModelCache is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from modelcache_operator.decide.demand import want_of
from modelcache_operator.decide.gates import GateFacts, gate_event, judge_gate, missing_cache_event
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.world import ObjectKey, PodView, Uid
from modelcache_operator.held_version import find_wanted_version
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.cluster import ClusterWriter
from modelcache_operator.ports.telling import EventSink
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.workqueue import Requeue

# Labels come and time goes by: gated pods are few, live for seconds, and a look costs no request.
_LOOK_AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class PodReconciler:
    """Only removes gates of ours, and only adds what the user asked for by `required`."""

    world: ObservedWorld
    memory: Memory
    writer: ClusterWriter
    events: EventSink
    clock: Clock
    timeout_seconds: float
    _seen_at: dict[ObjectKey, tuple[Uid, float]] = field(default_factory=dict)

    async def reconcile(self, key: ObjectKey) -> Requeue:
        """Safe to call at any time, any number of times."""
        pod = self.world.pod(key)
        if pod is not None and not pod.is_over and self._is_missing(pod.cache):
            self.events.publish((missing_cache_event(pod),))
        if pod is None or not pod.is_gated:
            self._seen_at.pop(key, None)
            return Requeue()
        is_new = self._note_sight(pod)
        verdict = judge_gate(self._gather(pod))
        if not verdict.lift:
            if is_new:
                self.events.publish((gate_event(pod, verdict),))
            return Requeue(_LOOK_AGAIN_SECONDS)
        if await self.writer.lift_gate(pod, verdict.require):
            self.events.publish((gate_event(pod, verdict),))
        return Requeue(_LOOK_AGAIN_SECONDS)

    def _is_missing(self, cache: ObjectKey) -> bool:
        return self.world.model_cache(cache) is None and not self.world.unreadable.has_cache(cache)

    def _gather(self, pod: PodView) -> GateFacts:
        version = find_wanted_version(want_of(pod), self.world, self.memory.assignments)
        _, seen_at = self._seen_at[pod.key]
        return GateFacts(
            pod=pod,
            cache=self.world.model_cache(pod.cache),
            version=version,
            books=self._books(version.uid) if version else (),
            waited_seconds=self.clock.monotonic() - seen_at,
            timeout_seconds=self.timeout_seconds,
        )

    def _books(self, version: Uid) -> tuple[NodeBook, ...]:
        books = self.memory.books.all()
        holders = sorted(self.memory.holders(version))
        return tuple(books[name] for name in holders if name in books)

    def _note_sight(self, pod: PodView) -> bool:
        """True at the first sight. By our own clock: those of API server and pods may differ."""
        known = self._seen_at.get(pod.key)
        if known is not None and known[0] == pod.uid:
            return False
        self._seen_at[pod.key] = (pod.uid, self.clock.monotonic())
        return True
