"""The host tier beside the loop: what is seen of it, loads that go on, and what is let go."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from modelcache_agent.background import BackgroundTasks
from modelcache_agent.decide.actions import Demote, Promote
from modelcache_agent.decide.host_fitness import HostFacts, describe_notes, describe_unfit
from modelcache_agent.decide.host_pressure import (
    CALM,
    HostPressure,
    MemorySigns,
    describe_low,
    judge_pressure,
)
from modelcache_agent.decide.host_world import HostSetback, HostView
from modelcache_agent.decide.ledger import Ledger
from modelcache_agent.decide.measures import LoadSource
from modelcache_agent.memory import Memory
from modelcache_agent.ports.clock import Clock
from modelcache_agent.ports.metrics import Metrics
from modelcache_agent.tiers.checking import find_reading, suspect
from modelcache_agent.tiers.disk import DiskStore, Survey
from modelcache_agent.tiers.errors import describe_error
from modelcache_agent.tiers.host.facts import find_facts
from modelcache_agent.tiers.host.loading import (
    DamagedError,
    HeldByReadersError,
    LoadFile,
    StoppedError,
)
from modelcache_agent.tiers.host.record import LockRecord
from modelcache_agent.tiers.host.tier import HostTier
from modelcache_agent.tiers.store_thread import StoreThread
from modelcache_agent.wakeup import Wakeup
from modelcache_api.decisions import DecisionKind
from modelcache_api.manifest import ContentDigest
from modelcache_api.names import Reason, Tier
from modelcache_api.quantities import format_bytes

_log = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 30.0
# Without numbers: they change with each look, and the status would be written again for each.
_HELD: Final = (
    "on the disk only: readers hold pages of it and would be charged for them if they were locked; "
    "it is locked when they have let go"
)
# Three small files of /proc and /sys.
_WATCH_SECONDS: Final = 2.0
_DRAIN_SECONDS: Final = 4.0


@dataclass(slots=True)
class HostKeeper:
    """One for an agent whose host tier is on. Without a `tier` the node is unfit for it."""

    capacity_bytes: int
    store: DiskStore
    thread: StoreThread
    memory: Memory
    tasks: BackgroundTasks
    wakeup: Wakeup
    clock: Clock
    metrics: Metrics
    read_signs: Callable[[], MemorySigns]
    tier: HostTier | None = None
    unfit: str | None = None
    _loads: dict[str, tuple[int, threading.Event]] = field(default_factory=dict)
    _loader: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="host")
    )
    _setbacks: dict[str, HostSetback] = field(default_factory=dict)
    _pressure: HostPressure = CALM

    async def open(self, find: Callable[[Path], HostFacts] = find_facts) -> None:
        """Find out whether the node is fit, and lock again what an earlier agent had locked."""
        try:
            facts = await asyncio.to_thread(find, self.store.layout.root)
            self.unfit = describe_unfit(facts, self.capacity_bytes)
        except OSError as error:
            self.unfit = f"the node cannot be judged: {describe_error(error)}"
        if self.unfit is not None:
            self.metrics.count_failure(Reason.HOST_TIER_UNFIT)
            _log.error("reason=%s the host tier is off: %s", Reason.HOST_TIER_UNFIT, self.unfit)
            return
        for note in describe_notes(facts):
            _log.info("host tier: %s", note)
        self.tier = HostTier(self.capacity_bytes, LockRecord(self.store.layout.host))
        self.store.ask_holder = self.tier.is_open_elsewhere
        locked = await asyncio.to_thread(self.tier.restore, self._find_files)
        _log.info(
            "host tier: capacity=%s locked=%s",
            format_bytes(self.capacity_bytes),
            format_bytes(locked),
        )
        self.tasks.start("host-pressure", self.watch())

    async def watch(self) -> None:
        """Wake the loop when memory runs low, until cancelled: the kernel waits for no tick."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            signs = self._read_signs()
            if self._pressure.may_load and signs is not None and describe_low(signs):
                self.wakeup.set()

    async def close(self) -> None:
        """End loads; what is cached and recorded is locked again by the next agent.

        For when no more turns are taken: they would see nothing locked and say so.
        """
        for _size, stopping in self._loads.values():
            stopping.set()
        if self.tier is None:
            return
        ended = asyncio.to_thread(self._loader.shutdown, cancel_futures=True)
        with suppress(TimeoutError):
            # A load that does not end keeps its maps: the process ends, and they with it.
            await asyncio.wait_for(ended, _DRAIN_SECONDS)
            self.tier.close()

    async def look(self, survey: Survey, mounted: frozenset[str]) -> HostView:
        """The tier as plans see it."""
        if self.tier is None:
            return HostView(Ledger(0), unfit=self.unfit or "")
        shown = (held.blobs for held in survey.held if held.digest in mounted)
        self.tier.note_shown(frozenset(blob.sha256 for blobs in shown for blob in blobs))
        seen = await asyncio.to_thread(self.tier.look)
        await self._judge()
        held = {content.digest for content in survey.held}
        self._setbacks = {d: setback for d, setback in self._setbacks.items() if d in held}
        promised = {digest: size for digest, (size, _) in self._loads.items()}
        ledger = Ledger(
            self.capacity_bytes,
            versions=seen.contents,
            reservations={**promised, **self._list_writing(survey)},
            pending_release_bytes=seen.lingering_bytes,
        )
        return HostView(
            ledger=ledger,
            loading=frozenset(self._loads),
            setbacks=dict(self._setbacks),
            pressure=self._pressure,
            condemned=self.memory.host_condemned,
            marked=self.memory.labels_in_memory,
        )

    def note_written(self, blobs: Sequence[str]) -> None:
        """These blobs lie in the page cache, written there and verified by us."""
        if self.tier is not None:
            self.tier.note_written(blobs)

    def start_load(self, action: Promote) -> None:
        """Lock the content, unless that goes on already. The bytes are promised from now on."""
        if self.tier is None or action.digest in self._loads:
            return
        stopping = threading.Event()
        self._loads[action.digest] = (action.size_bytes, stopping)
        self.tasks.start(f"load-{action.digest}", self._load(self.tier, action.digest, stopping))

    async def demote(self, action: Demote) -> bool:
        """Unlock the content, or stop locking it; True if it was locked until now."""
        is_locked = self.tier is not None and action.digest not in self._loads
        if action.digest in self._loads:
            self._loads[action.digest][1].set()
        elif self.tier is not None:
            await asyncio.to_thread(self.tier.unload, action.digest)
            _log.info("unlocked version=%s: %s", action.digest, action.why)
        self.wakeup.set()
        return is_locked

    async def _load(self, tier: HostTier, digest: ContentDigest, stopping: threading.Event) -> None:
        began = self.clock.monotonic()
        try:
            files = await self.thread.call(self._find_files, digest)
            if files is None:
                return
            size = await asyncio.get_running_loop().run_in_executor(
                self._loader, tier.load, digest, files, stopping.is_set
            )
        except StoppedError:
            return
        except DamagedError as error:
            _log.warning("version=%s %s", digest, error)
            # Nobody wants it locked any more until it is judged and, if need be, repaired.
            await self.thread.call(self._suspect, error)
        except HeldByReadersError as error:
            if digest not in self._setbacks:
                _log.info("version=%s is not locked: %s", digest, error)
            self._set_back(digest, Reason.HOST_TIER_BYPASSED, _HELD)
        except OSError as error:
            self.metrics.count_failure(Reason.HOST_TIER_BYPASSED)
            message = f"on the disk only: its pages cannot be locked: {describe_error(error)}"
            self._set_back(digest, Reason.HOST_TIER_BYPASSED, message)
            _log.warning("version=%s %s", digest, message)
        else:
            self._setbacks.pop(digest, None)
            seconds = self.clock.monotonic() - began
            self.metrics.count_load(Tier.HOST, LoadSource.DISK, seconds)
            _log.info("locked version=%s bytes=%d seconds=%.3f", digest, size, seconds)
        finally:
            stopping.set()
            self._loads.pop(digest, None)
            self.wakeup.set()

    def _set_back(self, digest: str, reason: Reason, message: str) -> None:
        retry_at = self.clock.monotonic() + _RETRY_SECONDS
        self._setbacks[digest] = HostSetback(reason, message, retry_at)

    async def _judge(self) -> None:
        before, signs = self._pressure, self._read_signs()
        if signs is None:
            return
        self._pressure = judge_pressure(
            signs, before, capacity_bytes=self.capacity_bytes, now=self.clock.monotonic()
        )
        if self._pressure.cause and not before.cause:
            self.metrics.count_failure(Reason.HOST_MEMORY_LOW)
            _log.warning("reason=%s %s", Reason.HOST_MEMORY_LOW, self._pressure.cause)
            await self._note(DecisionKind.PRESSURE_BEGAN, self._pressure.cause)
        if before.cause and not self._pressure.cause:
            await self._note(DecisionKind.PRESSURE_ENDED, "memory was above its high mark for long")

    async def _note(self, kind: DecisionKind, cause: str) -> None:
        await self.thread.call(self.store.decisions.note_pressure, kind, cause, Tier.HOST)

    def _read_signs(self) -> MemorySigns | None:
        try:
            return self.read_signs()
        except OSError as error:
            _log.warning("the node's memory cannot be read: %s", describe_error(error))
            return None

    def _list_writing(self, survey: Survey) -> Mapping[str, int]:
        """What transfers that write through memory were promised, until they are published."""
        published = {
            (origin.uid, origin.source_digest) for held in survey.held for origin in held.origins
        }
        return {
            uid: running.entry.size_bytes
            for uid, running in self.memory.fetches.items()
            if running.through_memory and (uid, running.entry.source_digest) not in published
        }

    def _find_files(self, digest: str) -> tuple[LoadFile, ...] | None:
        """The files of a verified content with the hashes of their pieces. Blocks."""
        stored = self.store.catalog.get(ContentDigest(digest))
        if stored is None or not stored.is_verified:
            return None
        distinct, pieces = {file.blob: file for file in stored.files}, self._find_pieces(digest)
        return tuple(
            LoadFile(
                blob=name,
                path=self.store.blobs.path(file),
                size_bytes=file.content.size_bytes,
                sha256=file.content.sha256,
                pieces=pieces.get(name, ()),
            )
            for name, file in sorted(distinct.items())
        )

    def _find_pieces(self, digest: str) -> Mapping[str, tuple[str, ...]]:
        """By blob; none where the record cannot be read, and then whole files are compared."""
        try:
            record = self.store.load_record(ContentDigest(digest))
        except (OSError, ValueError) as error:
            _log.warning("version=%s its record cannot be read: %s", digest, error)
            return {}
        return {file.blob: file.content.pieces for file in record.files}

    def _suspect(self, error: DamagedError) -> None:
        """The file is read in whole, from the disk, before anything is decided of it. Blocks."""
        found = find_reading(self.store, error.blob)
        if found is not None:
            suspect(self.store, found[0], error.piece)
