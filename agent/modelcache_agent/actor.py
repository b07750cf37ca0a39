"""Carries out plans. Requests are awaited, transfers are started; failures wait for their turn."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from modelcache_agent.decide.actions import (
    Action,
    CancelFetch,
    Demote,
    DropPartial,
    Evict,
    Fetch,
    FreeOnDevice,
    Isolate,
    LoadOnDevice,
    PauseFetch,
    Plan,
    Promote,
    Propose,
    Remove,
    Repair,
    Scrub,
    SetLabels,
    Verify,
    Victim,
)
from modelcache_agent.decide.pauses import Pause, lengthen
from modelcache_agent.errands import Errands
from modelcache_agent.gpu_keeper import GpuKeeper
from modelcache_agent.host_keeper import HostKeeper
from modelcache_agent.memory import Memory
from modelcache_agent.ports.clock import Clock
from modelcache_agent.ports.cluster import Cluster, ClusterError
from modelcache_agent.ports.metrics import Metrics
from modelcache_agent.tiers.damage import isolate
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.wakeup import Wakeup
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import Tier
from modelcache_api.v1alpha1.cache_node import CacheNodeStatus

_log = logging.getLogger(__name__)


class Actor:
    """The only one that changes the store's contents, the Node's labels and the status."""

    def __init__(  # noqa: PLR0913 - everything it touches, handed in
        self,
        *,
        memory: Memory,
        store: DiskStore,
        thread: StoreThread,
        cluster: Cluster,
        errands: Errands,
        host: HostKeeper | None,
        gpu: GpuKeeper | None = None,
        wakeup: Wakeup,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._memory = memory
        self._store = store
        self._thread = thread
        self._cluster = cluster
        self._errands = errands
        self._host = host
        self._gpu = gpu
        self._wakeup = wakeup
        self._clock = clock
        self._metrics = metrics
        self._victims: Mapping[str, Victim] = {}
        self._host_victims: Mapping[str, Victim] = {}

    async def act(self, plan: Plan) -> None:
        """The actions in order. Reservations are made before the first await that follows them."""
        memory = self._memory
        memory.forget_faults(plan.actions)
        self._victims = {victim.digest: victim for victim in plan.victims}
        self._host_victims = {victim.digest: victim for victim in plan.host_victims}
        for action in plan.actions:
            if not memory.rests(action, self._clock.monotonic()):
                await self._try(action)

    async def _try(self, action: Action) -> None:
        """One action; if it fails, the others go on, and it is told and tried again.

        Raises:
            TimeoutError: the disk hangs, and so would all others.
        """
        try:
            await self._perform(action)
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001 - it must not starve the other actions
            self._errands.note_fault(action, error)
            self._wakeup.set()
        else:
            if not isinstance(action, Verify | Scrub):  # those were only begun
                self._memory.faults.pop(action, None)

    async def _perform(self, action: Action) -> None:
        match action:
            case CancelFetch(uid):
                await self._errands.cancel(uid)
            case PauseFetch(uid):
                await self._errands.pause(uid)
            case SetLabels():
                await self.set_labels(action)
            case LoadOnDevice() | FreeOnDevice():
                self._change_card(action)
            case Promote() | Demote():
                await self._change_tier(action)
            case DropPartial(uid):
                await self._errands.drop_partial(uid)
            case Evict() | Remove() | Isolate():
                await self._give_up(action)
            case _:
                self._begin(action)

    async def _give_up(self, action: Evict | Remove | Isolate) -> None:
        """Bytes leave their place."""
        match action:
            case Evict(digest, uids):
                await self._evict(digest, uids)
            case Remove(digest):
                await self._thread.call(self._store.remove, digest)
            case Isolate(blob):
                await self._thread.call(isolate, self._store, blob)
        self._wakeup.set()

    async def _change_tier(self, action: Promote | Demote) -> None:
        if self._host is None:
            return
        match action:
            case Promote():
                self._host.start_load(action)
            case Demote():
                if await self._host.demote(action) and action.digest in self._host_victims:
                    await self._note_unlocked(self._host_victims[action.digest])

    async def _note_unlocked(self, victim: Victim) -> None:
        """Its bytes stay on the disk, so its size is found there."""
        stored = await self._thread.call(self._store.catalog.get, victim.digest)
        if stored is None:
            return
        uids = tuple(sorted({origin.uid for origin in stored.origins}))
        book = self._store.decisions
        await self._thread.call(book.note_eviction, victim, uids, stored.held.size_bytes, Tier.HOST)
        await self._count_eviction(Tier.HOST, victim)

    async def _count_eviction(self, tier: Tier, victim: Victim) -> None:
        age = await self._thread.call(self._store.age_of, victim.digest)
        self._metrics.count_eviction(tier, victim.kind, age)

    def _change_card(self, action: LoadOnDevice | FreeOnDevice) -> None:
        if self._gpu is None:
            return
        match action:
            case LoadOnDevice():
                self._gpu.start_load(action)
            case FreeOnDevice():
                self._gpu.start_free(action)

    def _begin(self, action: Verify | Scrub | Propose | Fetch | Repair) -> None:
        """What goes on beside the loop."""
        match action:
            case Verify(digest):
                self._errands.start_verify(digest)
            case Scrub():
                self._errands.start_scrub(action)
            case Propose(entry, digest):
                self._errands.start_propose(entry, digest)
            case Fetch(entry, through_memory):
                self._errands.start_fetch(entry, entry.size_bytes, through_memory=through_memory)
            case Repair(entry, size_bytes):
                self._errands.start_fetch(entry, size_bytes)

    async def _evict(self, digest: ContentDigest, uids: tuple[str, ...]) -> None:
        victim = self._victims[digest]
        stored = await self._thread.call(self._store.catalog.get, digest)
        if await self._thread.call(self._store.evict, digest, uids):
            await self._count_eviction(Tier.DISK, victim)
            _log.info("evicted version=%s %s", digest, victim)
            size_bytes = 0 if stored is None else stored.held.size_bytes
            book = self._store.decisions
            await self._thread.call(book.note_eviction, victim, uids, size_bytes)

    async def set_labels(self, wanted: SetLabels) -> None:
        """Apply the labels, unless the last failure was a moment ago."""
        memory, now = self._memory, self._clock.monotonic()
        if not memory.label_pause.is_over(now):
            return
        try:
            present = await self._cluster.apply_labels(
                wanted.keys, wanted.in_memory, wanted.on_device
            )
        except ClusterError as error:
            memory.node_labels = None
            memory.label_pause = self._lengthen(memory.label_pause, error)
            self._metrics.count_write("labels", succeeded=False)
            _log.warning("setting the Node's labels: %s", error)
            return
        self._metrics.count_write("labels", succeeded=True)
        memory.label_pause = Pause()
        for seconds in memory.take_labelled(present - (memory.node_labels or frozenset()), now):
            self._metrics.count_labelled(seconds)
        before = (memory.node_labels, memory.labels_in_memory, memory.labels_on_device)
        if before != (present, wanted.in_memory, wanted.on_device):
            _log.info(
                "labels=%d on the Node (host=%d, gpu=%d)",
                len(present),
                len(wanted.in_memory),
                len(wanted.on_device),
            )
            memory.node_labels = present
            memory.labels_in_memory = wanted.in_memory
            memory.labels_on_device = wanted.on_device
            self._wakeup.set()

    async def write_status(self, cache_node_uid: str, status: CacheNodeStatus) -> None:
        """Write the whole status, unless the last failure was a moment ago."""
        memory, now = self._memory, self._clock.monotonic()
        if not memory.status_pause.is_over(now):
            return
        try:
            await self._cluster.apply_status(cache_node_uid, status)
        except ClusterError as error:
            memory.written_status = None
            memory.status_pause = self._lengthen(memory.status_pause, error)
            self._metrics.count_write("status", succeeded=False)
            _log.warning("writing the status: %s", error)
            return
        self._metrics.count_write("status", succeeded=True)
        memory.status_pause = Pause()
        memory.written_status = status

    def retry_at(self) -> float | None:
        """When a request or action that failed may be tried again, or None."""
        memory = self._memory
        pauses = [memory.label_pause, memory.status_pause]
        pauses += [fault.pause for fault in memory.faults.values()]
        return min((pause.until for pause in pauses if pause.failures), default=None)

    def _lengthen(self, pause: Pause, error: ClusterError) -> Pause:
        return lengthen(
            pause,
            now=self._clock.monotonic(),
            jitter=self._clock.jitter(),
            retry_after=error.retry_after,
        )
