"""The contents that one card holds.

Everything here blocks and belongs on one thread of its own. A card that cannot be used, or is lost,
is a state and no error: the tier holds nothing then, says why, and looks again later; what the
tiers below hold is not touched by it.

Descriptors live in this process. After a restart of the agent the tier begins empty: what pods
map stays theirs, counts as foreign use, and is loaded anew for the next pod.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from modelcache_agent.decide.gpu.capacity import Budget, make_budget
from modelcache_agent.decide.gpu.handover import Pod, refuse_handover
from modelcache_agent.decide.gpu.health import AVAILABLE, NOT_LOOKED_YET, Health, after_failure
from modelcache_agent.decide.gpu.room import Candidate, Key, Room, Stay, make_room
from modelcache_agent.decide.gpu.world import NO_BUDGET
from modelcache_agent.ports.clock import Clock
from modelcache_agent.ports.device import (
    Device,
    DeviceError,
    DeviceIdentity,
    DeviceUnavailableError,
    OpenDevice,
    OutOfDeviceMemoryError,
)
from modelcache_agent.tiers.errors import describe_error
from modelcache_agent.tiers.gpu.contents import Content, Loaded, place_content
from modelcache_agent.tiers.gpu.loading import ContentChangedError, load, planned_extents, verify
from modelcache_api.device_layout import DeviceLayout
from modelcache_api.names import Reason

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostShare:
    """What the host tier may use and what it holds, in bytes: for cards that have no own memory."""

    capacity_bytes: int = 0
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """The tier's book, in bytes. `lingering_bytes` were given up and are still mapped by pods."""

    budget: Budget
    held_bytes: int
    lingering_bytes: int


@dataclass(frozen=True, slots=True)
class Handover:
    """For one pod: the layout, and descriptors in its order, which the caller closes."""

    layout: DeviceLayout
    descriptors: tuple[int, ...]


class GpuTier:
    """Contents on one card, within `setting_bytes` of it."""

    def __init__(self, open_device: OpenDevice, setting_bytes: int, clock: Clock) -> None:
        self._open = open_device
        self._setting = setting_bytes
        self._clock = clock
        self._device: Device | None = None
        self._held: dict[Key, Loaded] = {}
        self._maps: dict[str, list[Loaded]] = {}
        self._lingering: list[Loaded] = []
        self._host = HostShare()
        self.health: Health = NOT_LOOKED_YET

    @property
    def identity(self) -> DeviceIdentity | None:
        """The card; None while it cannot be used."""
        return None if self._device is None else self._device.identity

    def look(self, host: HostShare | None = None) -> Figures:
        """See whether the card can be used, and what others use of it. Call it once a turn."""
        self._host = host or self._host
        if self._device is None and self.health.is_due(self._clock.monotonic()):
            try:
                self._device = self._open()
                self.health = AVAILABLE
                found = self._device.identity
                _log.info("experimental GPU tier: %s is %s, %s", found.uuid, found.name, found.kind)
            except DeviceUnavailableError as error:
                self._give_up(error)
        return self.figures()

    def figures(self) -> Figures:
        """The book of this moment. A card that is not opened is not looked for."""
        try:
            budget = NO_BUDGET if self._device is None else self._budget(self._device)
        except DeviceUnavailableError as error:
            self._give_up(error)
            budget = NO_BUDGET
        return Figures(budget, _size(self._held.values()), _size(self._lingering))

    def measure(self, content: Content) -> int | None:
        """Bytes that the content would take, 0 if nothing of it is of use there.

        None: it cannot be said now, because of the card or of a file.
        """
        if self._device is None:
            return None
        try:
            placed = place_content(content)
        except OSError as error:
            _log.warning("version=%s cannot be measured: %s", content.digest, describe_error(error))
            return None
        if not any(file.size_bytes for file in placed):
            return 0
        return sum(planned_extents(self._device, placed))

    def held(self) -> tuple[Loaded, ...]:
        """Contents that are verified on the card now; nothing while it cannot be used."""
        return tuple(self._held.values())

    def is_attached(self, key: Key) -> bool:
        """True if a live pod maps what is held."""
        return key in self._held and self._is_mapped(self._held[key])

    def promote(self, content: Content, order: Sequence[Key] = ()) -> Loaded | Stay:
        """Load a content, or say why it stays in the tier below.

        Args:
            content: verified files of this node.
            order: contents that may give way, the first to go first (the policy's order). Those
                that pods map are spared: they would free nothing.
        """
        if content.key in self._held:
            return self._held[content.key]
        try:
            return self._promote(content, order)
        except DeviceUnavailableError as error:
            self._give_up(error)
            return Stay(Reason.GPU_UNAVAILABLE, str(error))
        except DeviceError as error:
            return Stay(Reason.GPU_UNAVAILABLE, str(error))
        except ContentChangedError as error:
            return Stay(Reason.DAMAGED, str(error))
        except OSError as error:
            return Stay(Reason.STORE_ERROR, f"a file cannot be read: {describe_error(error)}")

    def demote(self, key: Key) -> int:
        """Give a content up; its bytes, or 0 if it was not held.

        Pods that map it keep them: they linger until the pods end.
        """
        loaded = self._held.pop(key, None)
        if loaded is None or self._device is None:
            return 0
        if self._is_mapped(loaded):
            self._lingering.append(loaded)
        for extent in loaded.extents:
            self._device.free(extent)
        return loaded.size_bytes

    def attach(self, key: Key, pod: Pod, given: frozenset[str] | None) -> Handover | Stay:
        """Descriptors for a pod, after all bytes were read back and found right.

        Args:
            key: the content.
            pod: who asks, as the kubelet states it.
            given: ids of the devices that the kubelet gave to the pod; None: it did not say.
        """
        loaded, device = self._held.get(key), self._device
        if device is None or loaded is None:
            return Stay(
                self.health.reason or Reason.WAITING,
                self.health.message or "the content is not on the device",
            )
        refusal = refuse_handover(pod, key, device.identity.uuid, given)
        if refusal is not None:
            return refusal
        try:
            verify(device, loaded)
            handover = _hand_over(device, loaded)
        except DeviceUnavailableError as error:
            self._give_up(error)
            return Stay(Reason.GPU_UNAVAILABLE, str(error))
        except DeviceError as error:
            return Stay(Reason.GPU_UNAVAILABLE, str(error))
        except ContentChangedError as error:
            self.demote(key)
            return Stay(Reason.DAMAGED, str(error))
        maps = self._maps.setdefault(pod.uid, [])
        if not any(known is loaded for known in maps):
            maps.append(loaded)
        return handover

    def attached_pods(self) -> frozenset[str]:
        """UIDs of the pods that were given descriptors and are not known to be gone."""
        return frozenset(self._maps)

    def detach(self, pod_uid: str) -> None:
        """The pod is gone, and with it what it mapped."""
        self._maps.pop(pod_uid, None)
        self._lingering = [loaded for loaded in self._lingering if self._is_mapped(loaded)]

    def close(self) -> None:
        """Give all of it up."""
        self._forget()
        self.health = NOT_LOOKED_YET

    def _promote(self, content: Content, order: Sequence[Key]) -> Loaded | Stay:
        device = self._device
        if device is None:
            return Stay(Reason.GPU_UNAVAILABLE, self.health.message)
        placed = place_content(content)
        if not any(file.size_bytes for file in placed):
            return Stay(Reason.GPU_UNSUITED, "the version has no safetensors files")
        needed, refusal = sum(planned_extents(device, placed)), ""
        for was_refused in (False, True):
            budget, held = self._budget(device), self._candidates(order)
            room = make_room(
                needed,
                budget,
                held,
                lingering_bytes=_size(self._lingering),
                was_refused=was_refused,
            )
            if isinstance(room, Stay):
                message = f"{room.message}{refusal}"
                return replace(room, message=message, was_refused=was_refused)
            self._evict(room, content.key)
            try:
                self._held[content.key] = load(device, content, placed)
                return self._held[content.key]
            except OutOfDeviceMemoryError as error:
                refusal = f"; the device refused: {error}"
        return Stay(Reason.GPU_OUT_OF_MEMORY, f"it was tried twice{refusal}", was_refused=True)

    def _evict(self, room: Room, newcomer: Key) -> None:
        for victim in room.victims:
            _log.info("evicted %s from the GPU tier for %s", victim.uid, newcomer.uid)
            self.demote(victim)

    def _candidates(self, order: Sequence[Key]) -> tuple[Candidate, ...]:
        """All that is held, in that order; what is not named there is spared."""
        named = [key for key in dict.fromkeys(order) if key in self._held]
        spared = [key for key in self._held if key not in named]
        return tuple(
            Candidate(key, self._held[key].size_bytes, key in spared or self.is_attached(key))
            for key in (*named, *spared)
        )

    def _budget(self, device: Device) -> Budget:
        return make_budget(
            self._setting,
            device.figures(),
            ours_bytes=_size(self._held.values()) + _size(self._lingering),
            host_capacity_bytes=self._host.capacity_bytes,
            host_held_bytes=self._host.held_bytes,
        )

    def _is_mapped(self, loaded: Loaded) -> bool:
        return any(found is loaded for maps in self._maps.values() for found in maps)

    def _give_up(self, error: DeviceUnavailableError) -> None:
        """The card cannot be used: what it held is gone."""
        now, jitter = self._clock.monotonic(), self._clock.jitter()
        self.health = after_failure(self.health, str(error), now=now, jitter=jitter)
        _log.warning("the GPU tier is off, all other tiers go on: %s", error)
        self._forget()

    def _forget(self) -> None:
        """What pods still map is foreign use from now on."""
        self._held.clear()
        self._maps.clear()
        self._lingering.clear()
        if self._device is not None:
            self._device.close()
            self._device = None


def _size(contents: Iterable[Loaded]) -> int:
    return sum(loaded.size_bytes for loaded in contents)


def _hand_over(device: Device, loaded: Loaded) -> Handover:
    descriptors: list[int] = []
    try:
        for extent in loaded.extents:
            # One by one: what is open already is closed if the next one fails.
            descriptors.append(device.export(extent))  # noqa: PERF401
    except DeviceError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    layout = DeviceLayout(
        device=device.identity.uuid,
        is_emulated=device.identity.is_emulated,
        content_digest=loaded.content.digest,
        extents=tuple(extent.size_bytes for extent in loaded.extents),
        files=loaded.placed,
    )
    return Handover(layout, tuple(descriptors))
