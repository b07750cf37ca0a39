"""The shell: observe -> decide -> act -> report, whenever something happened or time has passed.

Level-triggered: each turn looks at everything anew. A turn never waits for a transfer, and a
request that fails is sent again by a later turn, after a pause. While the API server is away,
turns go on with the CacheNode as last seen; what needs its consent waits.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from modelcache_agent.actor import Actor
from modelcache_agent.decide.actions import EntryView, Plan, SetLabels
from modelcache_agent.decide.beside import note_uses
from modelcache_agent.decide.charges import charge
from modelcache_agent.decide.gpu.world import GpuView
from modelcache_agent.decide.host_world import HostView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.planner import carries_only, make_plan
from modelcache_agent.decide.policies import EvictionPolicy
from modelcache_agent.decide.report import make_status, strip_foreign_fields
from modelcache_agent.decide.volumes import (
    Wish,
    count_mounts,
    find_attached,
    list_canary_pods,
    list_demands,
    make_volume_views,
    make_wishes,
)
from modelcache_agent.decide.watermarks import NO_WATERMARKS, Watermarks
from modelcache_agent.gpu_keeper import GpuKeeper
from modelcache_agent.host_keeper import HostKeeper
from modelcache_agent.inputs.log import InputLog
from modelcache_agent.memory import Memory, make_ledger, make_world
from modelcache_agent.ports.clock import Clock
from modelcache_agent.ports.cluster import CacheNodeView, Cluster
from modelcache_agent.ports.metrics import Metrics
from modelcache_agent.pressure import PressureWatch
from modelcache_agent.socket.server import VolumeSockets
from modelcache_agent.tiers.disk import DiskStore, Survey
from modelcache_agent.tiers.errors import describe_error
from modelcache_agent.tiers.gpu.tier import HostShare
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.volume.keeper import VolumeKeeper
from modelcache_agent.wakeup import Wakeup
from modelcache_api.names import Condition, EntryState, Reason, Tier
from modelcache_api.v1alpha1.cache_node import EntrySpec, PeerStatus

_log = logging.getLogger(__name__)
# Bursts of events become one turn.
_COALESCE_SECONDS: Final = 0.1
_AFTER_BUG_SECONDS: Final = 5.0
# Which contents are in use is looked at this often, for the order of eviction.
USE_SECONDS: Final = 60.0
# What a disk answers that cannot be read at all.
_DISK_IS_BROKEN: Final = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE})
# How often a pod that waits for a transfer hears how far it is.
_PROGRESS_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """`tick_seconds`: how often the disk and its users are looked at without an event.

    `policy` says which contents give way to newcomers.
    `scrub_interval` (seconds): how old the last check of a file may be; None: no age matters.
    `watermarks` say when the file system is too full; what came less than `min_residency` seconds
    ago gives way after everything else.
    """

    node_uid: str
    capacity_bytes: int
    max_models: int
    agent_version: str
    policy: EvictionPolicy
    scrub_interval: float | None = None
    tick_seconds: float = 30.0
    watermarks: Watermarks = NO_WATERMARKS
    min_residency: float = 0.0


class AgentLoop:
    """One agent's life after start-up."""

    def __init__(  # noqa: PLR0913 - everything it touches, handed in
        self,
        settings: LoopSettings,
        *,
        memory: Memory,
        store: DiskStore,
        thread: StoreThread,
        cluster: Cluster,
        actor: Actor,
        wakeup: Wakeup,
        clock: Clock,
        metrics: Metrics,
        volumes: VolumeKeeper,
        host: HostKeeper | None = None,
        gpu: GpuKeeper | None = None,
        find_peer: Callable[[], PeerStatus | None] = lambda: None,
        sockets: VolumeSockets | None = None,
        inputs: InputLog | None = None,
    ) -> None:
        self._inputs = inputs
        self._pressure = PressureWatch(settings.watermarks, store, thread, metrics)
        self._find_peer = find_peer
        self._sockets = sockets
        self._settings = settings
        self._memory = memory
        self._store = store
        self._thread = thread
        self._cluster = cluster
        self._actor = actor
        self._wakeup = wakeup
        self._clock = clock
        self._metrics = metrics
        self._volumes = volumes
        self._host = host
        self._host_view: HostView | None = None
        self._gpu = gpu
        self._gpu_view: GpuView | None = None
        self._look_at = 0.0
        self._hide_at: float | None = None
        self._began_at = clock.monotonic()
        self._ledger = Ledger(settings.capacity_bytes)
        self._wishes: Sequence[Wish] = ()
        self.last_turn_at: float | None = None

    async def run(self) -> None:
        """Take turns until cancelled."""
        while True:
            recheck_at = await self._try_turn()
            await self._rest(recheck_at)

    async def _try_turn(self) -> float | None:
        """Only a completed turn says that we live: on a dead or hung disk the Lease runs out."""
        try:
            recheck_at = await self._turn()
        except OSError as error:
            _log.error("a turn failed: %s", describe_error(error))
            await self._tell_broken_disk(error)
        except Exception:  # noqa: BLE001 - counted and told; the next turn looks anew
            _log.exception("a turn failed")
        else:
            self.last_turn_at = self._clock.monotonic()
            return recheck_at
        self._metrics.count_error()
        await asyncio.sleep(_COALESCE_SECONDS)
        return self._clock.monotonic() + _AFTER_BUG_SECONDS

    @property
    def alive_at(self) -> float:
        """When the last turn was completed, or the life began (monotonic seconds)."""
        return self._began_at if self.last_turn_at is None else self.last_turn_at

    async def watch(self) -> None:
        """Follow our CacheNode until cancelled."""
        async with self._cluster.watch() as views:
            async for view in views:
                self._note_cache_node(view)
                self._wakeup.set()

    def _note_cache_node(self, view: CacheNodeView | None) -> None:
        """A CacheNode of another Node is not ours. Without one, everything stays as it is."""
        memory = self._memory
        if view is not None and view.spec.node_uid != self._settings.node_uid:
            _log.warning(
                "the CacheNode is for the Node with uid %s, this one has %s: waiting for the "
                "operator",
                view.spec.node_uid,
                self._settings.node_uid,
            )
            view = None
        before = memory.cache_node
        if view is None:
            if before is not None:
                _log.warning("the CacheNode is gone: everything stays as it is")
            memory.cache_node = None
            memory.written_status = None
            return
        if before is not None and _readiness(before) != _readiness(view):
            # The operator thought us lost, or forgave us: it takes labels away when it does.
            memory.node_labels = None
        if before is None or before.uid != view.uid:
            memory.written_status = strip_foreign_fields(view.status)
        memory.cache_node = view
        for running in memory.fetches.values():
            entry = view.spec.find_entry(running.entry.uid)
            if entry is not None and entry.content_digest != running.entry.content_digest:
                running.news.set()

    async def _turn(self) -> float | None:
        node = self._memory.cache_node
        survey = await self._thread.call(self._store.survey)
        volumes, leftover_bytes = await self._thread.call(self._volumes.look)
        volumes = note_uses(volumes, self._sockets.uses() if self._sockets is not None else {})
        survey = replace(
            survey, pending_release_bytes=survey.pending_release_bytes + leftover_bytes
        )
        wanted = [entry.uid for entry in self._entries()]
        self._memory.welcome(survey.adopted)
        ledger = make_ledger(survey, self._memory.fetches, self._settings.capacity_bytes, wanted)
        self._ledger = ledger
        self._memory.pressure = await self._pressure.look(survey.space)
        if node is None:
            await self._serve(make_wishes(volumes, ()), (), is_unlabelled=False)
            self._metrics.observe((), ledger, survey.free_bytes, len(self._labels()))
            return None
        self._wishes = wishes = make_wishes(volumes, node.spec.caches)
        plan = await self._decide(survey, ledger, wishes)
        self._memory.condemned = plan.condemned
        self._memory.host_condemned = plan.host_condemned
        self._memory.gpu_condemned = plan.gpu_condemned
        # Pods first: they wait for links, everything else waits for the network.
        is_unlabelled = carries_only(self._memory.node_labels, plan.labels)
        await self._serve(wishes, plan.entries, is_unlabelled=is_unlabelled)
        await self._actor.act(plan)
        await self._report(node, plan.entries, ledger)
        self._metrics.observe(plan.entries, ledger, survey.free_bytes, len(self._labels()))
        host = None if self._host_view is None else self._host_view.ledger
        self._metrics.observe_host(host)
        self._metrics.observe_gpu(self._gpu_view)
        books = {Tier.DISK: ledger} if host is None else {Tier.DISK: ledger, Tier.HOST: host}
        self._metrics.observe_charges(charge(node.spec, survey.held, books, self._gpu_view))
        return self._next_turn(plan, wishes)

    async def _serve(
        self, wishes: Sequence[Wish], views: Sequence[EntryView], *, is_unlabelled: bool
    ) -> None:
        node = self._memory.cache_node
        flights = [fetch.flight for fetch in self._memory.fetches.values()]
        spec = node.spec if node is not None else None
        served = await self._thread.call(
            self._volumes.serve,
            make_volume_views(
                wishes,
                spec,
                views,
                flights,
                is_unlabelled=is_unlabelled,
                is_pressed=self._memory.pressure is not None,
            ),
        )
        for attach in served.attached:
            self._metrics.count_attach(attach)
        self._hide_at = served.look_again_at
        if served.has_freed:
            # What no volume shows any more may leave the disk.
            self._wakeup.set()
        if self._sockets is not None:
            await self._sockets.show(served.shown)

    async def _decide(self, survey: Survey, ledger: Ledger, wishes: Sequence[Wish]) -> Plan:
        """Which contents are in use is asked where it matters, and now and then."""
        self._memory.forget_strangers(self._entries())
        wanted = frozenset(entry.uid for entry in self._entries())
        if survey.evicted - wanted:
            await self._forget_evictions(wanted)
        world = make_world(
            self._memory,
            survey,
            ledger,
            wishes=wishes,
            now=self._clock.monotonic(),
            max_models=self._settings.max_models,
            scrub_interval=self._settings.scrub_interval,
            marks=self._settings.watermarks,
            min_residency=self._settings.min_residency,
        )
        if self._host is not None:
            self._host_view = await self._host.look(survey, world.mounted)
            world = replace(world, host=self._host_view)
        if self._gpu is not None:
            self._gpu_view = await self._look_at_card(self._gpu, survey, wishes)
            world = replace(world, gpu=self._gpu_view)
        plan = make_plan(world, self._settings.policy)
        now = self._clock.monotonic()
        if plan.must_look_at_use or now >= self._look_at:
            in_use = await self._thread.call(self._store.find_in_use)
            self._look_at = now + USE_SECONDS
            world = replace(world, in_use=in_use)
            plan = make_plan(world, self._settings.policy)
        if self._inputs is not None:
            await self._thread.call(self._inputs.note_decision, world, plan)
        return plan

    async def _look_at_card(
        self, gpu: GpuKeeper, survey: Survey, wishes: Sequence[Wish]
    ) -> GpuView:
        node, host = self._memory.cache_node, self._host_view
        caches = node.spec.caches if node is not None else ()
        book = Ledger(0) if host is None else host.ledger
        share = HostShare(book.capacity_bytes, book.used_bytes)
        return await gpu.look(self._entries(), caches, survey, wishes, share)

    async def _forget_evictions(self, wanted: frozenset[str]) -> None:
        """Marks of entries that are gone do no harm, so a disk that cannot write them may wait."""
        try:
            await self._thread.call(self._store.forget_evictions, wanted)
        except TimeoutError:
            raise
        except OSError as error:
            _log.warning("old marks of evictions stay: %s", describe_error(error))

    async def _tell_broken_disk(self, error: OSError) -> None:
        """Nothing can be verified on it now: no label is true, and every entry says why."""
        node = self._memory.cache_node
        if node is None or not (isinstance(error, TimeoutError) or error.errno in _DISK_IS_BROKEN):
            return
        if self._memory.node_labels != frozenset():
            await self._actor.set_labels(SetLabels(frozenset()))
        message = f"the store's disk is broken: {describe_error(error)}"
        uids = dict.fromkeys(entry.uid for entry in self._entries())
        views = tuple(
            EntryView(uid, EntryState.FAILED, Reason.STORE_ERROR, message) for uid in uids
        )
        await self._report(node, views, self._ledger)

    async def _report(
        self, node: CacheNodeView, views: tuple[EntryView, ...], ledger: Ledger
    ) -> None:
        status = make_status(
            views,
            ledger,
            host=self._host_view,
            gpu=self._gpu_view,
            agent_version=self._settings.agent_version,
            mounts=count_mounts(self._wishes),
            demands=list_demands(self._wishes),
            canary_pods=list_canary_pods(self._wishes),
            peer=self._find_peer(),
            pressure=self._memory.pressure,
        )
        if status != self._memory.written_status:
            await self._actor.write_status(node.uid, status)

    def _entries(self) -> tuple[EntrySpec, ...]:
        node = self._memory.cache_node
        return node.spec.entries if node is not None else ()

    def _labels(self) -> frozenset[str]:
        return self._memory.node_labels or frozenset()

    def _next_turn(self, plan: Plan, wishes: Sequence[Wish]) -> float | None:
        moments = [plan.recheck_at, self._actor.retry_at(), self._hide_at]
        if not find_attached(wishes).isdisjoint(self._memory.fetches):
            moments.append(self._clock.monotonic() + _PROGRESS_SECONDS)
        return min((moment for moment in moments if moment is not None), default=None)

    async def _rest(self, recheck_at: float | None) -> None:
        """Until something happens, the plan's moment or the tick comes."""
        now = self._clock.monotonic()
        seconds = self._settings.tick_seconds
        if recheck_at is not None:
            seconds = min(seconds, max(_COALESCE_SECONDS, recheck_at - now))
        await self._wakeup.wait(seconds)
        await asyncio.sleep(_COALESCE_SECONDS)


def _readiness(view: CacheNodeView) -> str | None:
    """What the operator says of us."""
    ready = (c.status for c in view.status.conditions if c.type == Condition.READY)
    return next(ready, None)
