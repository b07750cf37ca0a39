"""A device in host memory, for machines without one: each extent is a memfd.

It keeps the rules of a slab: an extent has an address, and lies in one piece. So fragmentation and
compaction are those of `decide/gpu/arena.py`, and a move copies the bytes as a device would.
"""

from __future__ import annotations

import fcntl
import logging
import os
from dataclasses import dataclass
from typing import Final

from modelcache_agent.decide.gpu.arena import (
    Arena,
    NoPlace,
    Place,
    Region,
    Shape,
    choose_place,
    class_bytes,
    fragmentation,
    make_arena,
    place_block,
    remove_block,
)
from modelcache_agent.decide.gpu.capacity import CardFigures
from modelcache_agent.decide.gpu.compaction import (
    Compaction,
    carry_out,
    compact_for,
    compact_idle,
)
from modelcache_agent.decide.gpu.extents import ExtentRules
from modelcache_agent.ports.device import (
    DeviceError,
    DeviceIdentity,
    Extent,
    OutOfDeviceMemoryError,
)
from modelcache_api.manifest import PIECE_BYTES

_log = logging.getLogger(__name__)
_NOT_LOCKED: Final = "the device is emulated: there is nothing to page-lock for"


@dataclass(slots=True)
class _Memory:
    """An extent's address in the slab and its bytes. What was exported cannot move any more."""

    address: int
    fd: int
    size_bytes: int
    is_exported: bool = False


class EmulatedDevice:
    """Implements `ports.device.Device`.

    Args:
        shape: the slab.
        foreign_bytes: what others are played to use of it.
    """

    def __init__(self, shape: Shape, *, foreign_bytes: int = 0) -> None:
        self.identity = DeviceIdentity(
            uuid=f"EMULATED-{os.getpid()}",
            name="emulated in host memory",
            kind="emulated",
            is_emulated=True,
        )
        self.rules = ExtentRules(shape.unit_bytes, None)
        self.arena: Arena = make_arena(shape)
        self.foreign_bytes = foreign_bytes
        self.moved_bytes = 0
        self._extents: dict[int, _Memory] = {}
        self._last_number = 0
        _log.warning("the GPU tier is emulated: its bytes are host memory, no device is used")

    def figures(self) -> CardFigures:
        """Of the slab."""
        used = self.arena.used_bytes + self.foreign_bytes
        worst = max(self.fragmentation().values())
        return CardFigures(self.arena.shape.size_bytes, used, fragmentation=worst)

    def fragmentation(self) -> dict[str, float]:
        """The figure of each region."""
        return {r.name: fragmentation(self.arena.gaps(r)) for r in self.arena.regions}

    def allocate(self, size_bytes: int, owner: str) -> Extent:
        """As the port says; the slab is compacted if that makes room."""
        needed = class_bytes(size_bytes, self.rules.granularity_bytes)
        if self.arena.used_bytes + needed > self.arena.shape.size_bytes - self.foreign_bytes:
            raise OutOfDeviceMemoryError(f"{needed} bytes are more than is free")
        found = choose_place(self.arena, owner, size_bytes)
        if isinstance(found, NoPlace) and found.is_fragmented:
            plan = compact_for(self.arena, owner, size_bytes, self._fixed())
            if plan is not None:
                self._carry_out(plan)
                found = choose_place(self.arena, owner, size_bytes)
        if isinstance(found, NoPlace):
            raise OutOfDeviceMemoryError(
                f"{found.needed_bytes} bytes are needed in one piece; {found.free_bytes} are free, "
                f"{found.largest_bytes} at once"
            )
        return self._create(owner, found)

    def tidy(self, region: Region) -> int:
        """Put a region in order if it is in pieces. Returns the bytes moved."""
        plan = compact_idle(self.arena, region, self._fixed())
        return 0 if plan is None else self._carry_out(plan)

    def staging(self) -> _Buffer:
        """One buffer; nothing runs beside it."""
        return _Buffer(self)

    def write(self, extent: Extent, offset: int, source: memoryview) -> None:
        """Put bytes there. Raises DeviceError."""
        memory = self._find(extent)
        if memory.is_exported or offset + len(source) > memory.size_bytes:
            raise DeviceError(f"extent {extent.number} does not take {len(source)} bytes there")
        os.pwrite(memory.fd, source, offset)

    def read_back(self, extent: Extent, offset: int, into: memoryview) -> None:
        """As the port says."""
        if os.preadv(self._find(extent).fd, [into], offset) != len(into):
            raise DeviceError(f"extent {extent.number} ends before {offset + len(into)}")

    def export(self, extent: Extent) -> int:
        """As the port says. From now on nobody can change these bytes, and they keep their place.

        Stronger than a real device, whose importers may ask for write access.
        """
        memory = self._find(extent)
        if not memory.is_exported:
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, seals)
            memory.is_exported = True
        return os.open(f"/proc/self/fd/{memory.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def free(self, extent: Extent) -> None:
        """As the port says."""
        memory = self._extents.pop(extent.number, None)
        if memory is not None:
            os.close(memory.fd)
            self.arena = remove_block(self.arena, memory.address)

    def close(self) -> None:
        """As the port says."""
        for number in tuple(self._extents):
            self.free(Extent(number, 0))

    def _create(self, owner: str, place: Place) -> Extent:
        fd = _make_memory(place.size_bytes)
        self.arena = place_block(self.arena, owner, place)
        self._last_number += 1
        self._extents[self._last_number] = _Memory(place.offset, fd, place.size_bytes)
        return Extent(self._last_number, place.size_bytes)

    def _carry_out(self, plan: Compaction) -> int:
        by_address = {memory.address: memory for memory in self._extents.values()}
        self.arena = carry_out(self.arena, plan.moves)
        for move in plan.moves:
            memory = by_address[move.block.offset]
            memory.fd = _copy_memory(memory.fd, memory.size_bytes)
            memory.address = move.to
        self.moved_bytes += plan.moved_bytes
        _log.info("compacted: %d bytes moved, because %s", plan.moved_bytes, plan.why)
        return plan.moved_bytes

    def _fixed(self) -> frozenset[int]:
        return frozenset(m.address for m in self._extents.values() if m.is_exported)

    def _find(self, extent: Extent) -> _Memory:
        try:
            return self._extents[extent.number]
        except KeyError:
            raise DeviceError(f"there is no extent {extent.number}") from None


class _Buffer:
    """Implements `ports.device.Staging`."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self._view = memoryview(bytearray(PIECE_BYTES))
        self.pageable_because: str | None = _NOT_LOCKED

    def take(self) -> memoryview:
        return self._view

    def put(self, begin: int, length: int, extent: Extent, offset: int) -> None:
        self._device.write(extent, offset, self._view[begin : begin + length])

    def finish(self) -> None:
        """Nothing runs."""


def _make_memory(size_bytes: int) -> int:
    fd = os.memfd_create("modelcache-emulated", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, size_bytes)
    return fd


def _copy_memory(fd: int, size_bytes: int) -> int:
    copy = _make_memory(size_bytes)
    done = 0
    while done < size_bytes:
        done += os.copy_file_range(fd, copy, size_bytes - done, done, done)
    os.close(fd)
    return copy
