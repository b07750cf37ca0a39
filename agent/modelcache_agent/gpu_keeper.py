"""The GPU tier beside the loop: what is seen of it, loads that go on, who is given descriptors.

Experimental. All calls of the card run on one thread, which a load may keep for minutes: a turn
then sees what was seen last.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from modelcache_agent.background import BackgroundTasks
from modelcache_agent.decide.actions import FreeOnDevice, LoadOnDevice
from modelcache_agent.decide.gpu.handover import Pod
from modelcache_agent.decide.gpu.health import NOT_LOOKED_YET, Health
from modelcache_agent.decide.gpu.room import Key, Stay
from modelcache_agent.decide.gpu.world import GpuSetback, GpuView, OnDevice, find_namespaces
from modelcache_agent.decide.measures import LoadSource
from modelcache_agent.decide.volumes import Volume, Wish
from modelcache_agent.memory import Memory
from modelcache_agent.ports.clock import Clock
from modelcache_agent.ports.metrics import Metrics
from modelcache_agent.tiers.disk import DiskStore, Survey
from modelcache_agent.tiers.gpu.contents import Content, Loaded, Source
from modelcache_agent.tiers.gpu.pod_resources import PodResources
from modelcache_agent.tiers.gpu.tier import Figures, GpuTier, Handover, HostShare
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.wakeup import Wakeup
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import Reason, Tier
from modelcache_api.v1alpha1.cache_node import CacheRef, EntrySpec

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")
_RETRY_SECONDS: Final = 30.0
# A card is opened in a second or more, and a broken driver may hang: no turn waits for it.
_PATIENCE_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the card's thread saw last."""

    figures: Figures
    held: Mapping[Key, OnDevice]
    health: Health
    is_emulated: bool


@dataclass(slots=True)
class GpuKeeper:
    """One for an agent whose GPU tier is on. Without a `kubelet`, every pod is given the device."""

    tier: GpuTier
    store: DiskStore
    thread: StoreThread
    memory: Memory
    tasks: BackgroundTasks
    wakeup: Wakeup
    clock: Clock
    metrics: Metrics
    kubelet: PodResources | None
    _seen: _Seen | None = None
    _refresh: asyncio.Task[None] | None = None
    _loads: dict[Key, int] = field(default_factory=dict)
    _freeing: set[Key] = field(default_factory=set)
    _needed: dict[str, int] = field(default_factory=dict)
    _setbacks: dict[Key, GpuSetback] = field(default_factory=dict)
    _pods: Mapping[str, Pod] = field(default_factory=dict)
    """By volume, as the kubelet states them."""
    _worker: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="gpu")
    )

    async def close(self) -> None:
        """Give the card back. What pods map stays theirs."""
        self._worker.submit(self.tier.close)
        if self.kubelet is not None:
            self.kubelet.close()
        with suppress(TimeoutError):
            # What does not end keeps its memory: the process ends, and it with it.
            await asyncio.wait_for(asyncio.to_thread(self._worker.shutdown), _DRAIN_SECONDS)

    async def look(
        self,
        entries: Iterable[EntrySpec],
        caches: Iterable[CacheRef],
        survey: Survey,
        wishes: Iterable[Wish],
        host: HostShare,
    ) -> GpuView:
        """The tier as plans see it."""
        self._pods = {wish.volume.key: _pod_of(wish.volume) for wish in wishes}
        wanted = {entry.uid: entry.content_digest for entry in entries if entry.tier is Tier.GPU}
        sound = {content.digest for content in survey.held if not content.damage}
        # What is fetched again is another try.
        self._setbacks = {
            key: setback for key, setback in self._setbacks.items() if wanted.get(key.uid) in sound
        }
        held = sound & set(wanted.values())
        self._needed = {d: size for d, size in self._needed.items() if d in held}
        if self._refresh is None and not self._loads:
            unmeasured = sorted(held - self._needed.keys())
            self._refresh = self.tasks.start("gpu-look", self._look_again(unmeasured, host))
            await asyncio.wait((self._refresh,), timeout=_PATIENCE_SECONDS)
        return self._make_view(find_namespaces(caches))

    def start_load(self, action: LoadOnDevice) -> None:
        """Copy the content to the card, unless that goes on already."""
        if action.key not in self._loads:
            self._loads[action.key] = action.size_bytes
            self.tasks.start(f"gpu-{action.key.uid}", self._load(action))

    def start_free(self, action: FreeOnDevice) -> None:
        """Give a content up, once the card's thread has time; what pods map of it lingers."""
        if action.key not in self._freeing:
            self._freeing.add(action.key)
            self.tasks.start(f"gpu-{action.key.uid}", self._free(action))

    async def hand_over(self, volume: str, version: str, digest: str) -> Handover | Stay:
        """Descriptors for the pod of a volume, of the version that it shows.

        Whoever gets them closes them.
        """
        pod = self._pods.get(volume)
        if pod is None or self._seen is None:
            return Stay(Reason.WAITING, "the agent has not looked at this volume yet")
        key = Key(pod.namespace, version)
        copy = self._seen.held.get(key)
        if copy is None or copy.digest != digest:
            health = self._seen.health
            message = health.message or "the version is not in GPU memory"
            return Stay(health.reason or Reason.WAITING, message)
        given = None
        if self.kubelet is not None:
            given = await asyncio.to_thread(self.kubelet.devices_of, pod)
        work = asyncio.create_task(
            self._on_device(partial(self._attach, key, pod, given)), name="gpu-attach"
        )
        try:
            found = await asyncio.shield(work)
        except asyncio.CancelledError:
            # The client has gone; what is exported for it meanwhile is nobody's.
            work.add_done_callback(_close_unclaimed)
            raise
        if isinstance(found, Stay):
            self._tell(found)
        self.wakeup.set()
        return found

    def _attach(self, key: Key, pod: Pod, given: frozenset[str] | None) -> Handover | Stay:
        if self.kubelet is None and self.tier.identity is not None:
            given = frozenset({self.tier.identity.uuid})
        return self.tier.attach(key, pod, given)

    async def _look_again(self, unmeasured: Iterable[str], host: HostShare) -> None:
        before = self._seen
        try:
            contents = [await self.thread.call(self._find_content, None, d) for d in unmeasured]
            known = [content for content in contents if content is not None]
            await self._on_device(partial(self._survey, known, host))
        finally:
            self._refresh = None
        if before is None or before.health.reason != (self._seen or before).health.reason:
            self.wakeup.set()

    def _survey(self, contents: Iterable[Content], host: HostShare) -> None:
        """Runs on the card's thread."""
        self.tier.look(host)
        living = {pod.uid for pod in self._pods.values()}
        for uid in self.tier.attached_pods() - living:
            self.tier.detach(uid)
        for content in contents:
            size = self.tier.measure(content)
            if size is not None:
                self._needed[content.digest] = size

    async def _on_device(self, work: Callable[[], _Value]) -> _Value:
        """Do it on the card's thread, and remember what is to be seen afterwards."""

        def do() -> tuple[_Value, _Seen]:
            result = work()
            return result, _see(self.tier)

        result, seen = await asyncio.get_running_loop().run_in_executor(self._worker, do)
        was_available = self._seen is None or self._seen.health.is_available
        self._seen = seen
        if was_available and not seen.health.is_available:
            self._tell(Stay(Reason.GPU_UNAVAILABLE, seen.health.message))
            self.wakeup.set()
        return result

    async def _load(self, action: LoadOnDevice) -> None:
        began, key = self.clock.monotonic(), action.key
        try:
            content = await self.thread.call(self._find_content, key, action.digest)
            if content is None:
                return
            found = await self._on_device(partial(self.tier.promote, content))
            if isinstance(found, Loaded):
                self._setbacks.pop(key, None)
                seconds = self.clock.monotonic() - began
                self.metrics.count_load(Tier.GPU, LoadSource.DISK, seconds)
                _log.info(
                    "on the card version=%s bytes=%d seconds=%.3f",
                    action.digest,
                    found.size_bytes,
                    seconds,
                )
            else:
                self._set_back(key, found)
                if found.reason is Reason.DAMAGED:
                    await self.thread.call(self._doubt, content)
        finally:
            self._loads.pop(key, None)
            self.wakeup.set()

    async def _free(self, action: FreeOnDevice) -> None:
        try:
            freed = await self._on_device(partial(self.tier.demote, action.key))
            _log.info("freed on the card version=%s: %s", action.key.uid, action.why)
            if freed and action.victim is not None:
                note, uids = self.store.decisions.note_eviction, (action.key.uid,)
                await self.thread.call(note, action.victim, uids, freed, Tier.GPU)
                age = await self.thread.call(self.store.age_of, action.victim.digest)
                self.metrics.count_eviction(Tier.GPU, action.victim.kind, age)
        finally:
            self._freeing.discard(action.key)
            self.wakeup.set()

    def _doubt(self, content: Content) -> None:
        """The files are hashed before anything else is decided of them. Blocks."""
        stored = self.store.catalog.get(ContentDigest(content.digest))
        if stored is not None:
            self.store.catalog.doubt([file.blob for file in stored.files])

    def _set_back(self, key: Key, stay: Stay) -> None:
        """The first refusal of the card makes others give way, the second is waited for."""
        now, before = self.clock.monotonic(), self._setbacks.get(key)
        is_second = before is not None and before.retry_at > now
        beside = None
        if stay.was_refused and not is_second and self._seen is not None:
            beside = frozenset(self._seen.held)
        self._setbacks[key] = GpuSetback(stay.reason, stay.message, now + _RETRY_SECONDS, beside)
        self._tell(stay, key.uid)

    def _tell(self, stay: Stay, version: str = "") -> None:
        self.metrics.count_failure(stay.reason)
        _log.warning("reason=%s version=%s GPU tier: %s", stay.reason, version, stay.message)

    def _make_view(self, namespaces: Mapping[str, str]) -> GpuView:
        seen = self._seen
        if seen is None or not seen.health.is_available:
            health = NOT_LOOKED_YET if seen is None else seen.health
            return GpuView(
                namespaces=namespaces,
                marked=self.memory.labels_on_device,
                why_off=health.message,
            )
        return GpuView(
            budget=seen.figures.budget,
            held=seen.held,
            loading=dict(self._loads),
            lingering_bytes=seen.figures.lingering_bytes,
            needed=dict(sorted(self._needed.items())),
            namespaces=namespaces,
            setbacks=dict(self._setbacks),
            condemned=self.memory.gpu_condemned,
            marked=self.memory.labels_on_device,
            is_emulated=seen.is_emulated,
        )

    def _find_content(self, key: Key | None, digest: str) -> Content | None:
        """The verified files of a content with the hashes of their pieces. Blocks."""
        stored = self.store.catalog.get(ContentDigest(digest))
        if stored is None or not stored.is_verified:
            return None
        try:
            files = self.store.load_record(stored.digest).files
        except (OSError, ValueError) as error:
            _log.warning("version=%s its record cannot be read: %s", digest, error)
            files = stored.files
        sources = tuple(Source(file.content, self.store.blobs.path(file)) for file in files)
        return Content(key or Key("", ""), digest, sources)


def _see(tier: GpuTier) -> _Seen:
    """Figures first: while they are asked for, a lost card is noticed."""
    figures, identity = tier.figures(), tier.identity
    held = {
        loaded.content.key: OnDevice(
            loaded.content.digest, loaded.size_bytes, tier.is_attached(loaded.content.key)
        )
        for loaded in tier.held()
    }
    is_emulated = identity is not None and identity.is_emulated
    return _Seen(figures, dict(sorted(held.items())), tier.health, is_emulated)


def _pod_of(volume: Volume) -> Pod:
    return Pod(volume.namespace, volume.pod_name, volume.key.partition("/")[0])


def _close_unclaimed(work: asyncio.Task[Handover | Stay]) -> None:
    if not work.cancelled() and work.exception() is None:
        found = work.result()
        for descriptor in found.descriptors if isinstance(found, Handover) else ():
            os.close(descriptor)
