"""A card of NVIDIA, by the driver's virtual memory management. Experimental.

An extent is one physical allocation that can be exported as a POSIX descriptor, mapped here for
filling and reading back. Its memory is given back when the last process has unmapped it.
"""

from __future__ import annotations

import fcntl
import logging
import uuid
from dataclasses import dataclass
from typing import Any, Final

from modelcache_agent.decide.gpu.capacity import CardFigures
from modelcache_agent.decide.gpu.extents import ExtentRules
from modelcache_agent.ports.device import (
    DeviceError,
    DeviceIdentity,
    DeviceUnavailableError,
    Extent,
)
from modelcache_agent.tiers.gpu.cuda_calls import CudaCalls
from modelcache_agent.tiers.gpu.nvml import Card, read_cards
from modelcache_agent.tiers.gpu.pinned import PinnedRing
from modelcache_api.manifest import PIECE_BYTES

_log = logging.getLogger(__name__)
_NAME_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class _Mapped:
    handle: Any
    address: int
    size_bytes: int


class CudaDevice:
    """Implements `ports.device.Device`. Opening it makes the card's primary context.

    Args:
        ordinal: which of the cards that this process sees.

    Raises:
        DeviceUnavailableError: no driver, no such card, or one without the needed features.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self._calls = CudaCalls()
        self._calls("cuInit", 0)
        self._card = self._calls("cuDeviceGet", ordinal)
        self._require_features()
        self.identity = self._identify()
        self._properties = self._make_properties(ordinal)
        self._access = self._make_access()
        self.rules = ExtentRules(self._granularity())
        self._extents: dict[int, _Mapped] = {}
        self._last_number = 0
        self._ring = PinnedRing(self._calls, self._enter, self._address, PIECE_BYTES)
        # Last, so that nothing has to be given back if the card is unfit.
        self._context = self._calls("cuDevicePrimaryCtxRetain", self._card)

    def figures(self) -> CardFigures:
        """By NVML; where that says nothing, by the driver, which counts only what it can give."""
        card = self._find_card()
        if card is not None and card.figures.total_bytes is not None:
            return card.figures
        self._enter()
        free, total = self._calls("cuMemGetInfo")
        return CardFigures(total, total - free, is_host_memory=self._is_integrated())

    def allocate(self, size_bytes: int, owner: str) -> Extent:  # noqa: ARG002 - no extent is shared
        """As the port says."""
        self._enter()
        handle = self._calls("cuMemCreate", size_bytes, self._properties, 0)
        try:
            address = self._map(handle, size_bytes)
        except DeviceError:
            self._quietly("cuMemRelease", handle)
            raise
        self._last_number += 1
        self._extents[self._last_number] = _Mapped(handle, address, size_bytes)
        return Extent(self._last_number, size_bytes)

    def staging(self) -> PinnedRing:
        """The ring, which is kept from load to load."""
        self._enter()
        return self._ring

    def read_back(self, extent: Extent, offset: int, into: memoryview) -> None:
        """As the port says."""
        self._enter()
        self._calls("cuMemcpyDtoH", into, self._address(extent, offset), len(into))

    def export(self, extent: Extent) -> int:
        """As the port says."""
        kinds = self._calls.api.CUmemAllocationHandleType
        kind = kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        handle = self._find(extent).handle
        descriptor = int(self._calls("cuMemExportToShareableHandle", handle, kind, 0))
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        return descriptor

    def free(self, extent: Extent) -> None:
        """As the port says."""
        mapped = self._extents.pop(extent.number, None)
        if mapped is None:
            return
        self._quietly("cuCtxSetCurrent", self._context)
        address = self._calls.api.CUdeviceptr(mapped.address)
        self._quietly("cuMemUnmap", address, mapped.size_bytes)
        self._quietly("cuMemAddressFree", address, mapped.size_bytes)
        self._quietly("cuMemRelease", mapped.handle)

    def close(self) -> None:
        """As the port says."""
        for number in tuple(self._extents):
            self.free(Extent(number, 0))
        self._quietly("cuCtxSetCurrent", self._context)
        if self._ring.close():
            self._quietly("cuDevicePrimaryCtxRelease", self._card)
        else:
            _log.warning("page-locking has not come back: the context is kept until this ends")

    def _map(self, handle: Any, size_bytes: int) -> int:
        none = self._calls.api.CUdeviceptr(0)
        granularity = self.rules.granularity_bytes
        address = self._calls("cuMemAddressReserve", size_bytes, granularity, none, 0)
        try:
            self._calls("cuMemMap", address, size_bytes, 0, handle, 0)
            try:
                self._calls("cuMemSetAccess", address, size_bytes, [self._access], 1)
            except DeviceError:
                self._quietly("cuMemUnmap", address, size_bytes)
                raise
        except DeviceError:
            self._quietly("cuMemAddressFree", address, size_bytes)
            raise
        return int(address)

    def _require_features(self) -> None:
        attributes = self._calls.api.CUdevice_attribute
        for name in (
            "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
            "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
        ):
            if not self._calls("cuDeviceGetAttribute", getattr(attributes, name), self._card):
                word = name.removeprefix("CU_DEVICE_ATTRIBUTE_").removesuffix("_SUPPORTED")
                raise DeviceUnavailableError(f"the card does not support {word}")

    def _is_integrated(self) -> bool:
        attribute = self._calls.api.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED
        return bool(self._calls("cuDeviceGetAttribute", attribute, self._card))

    def _identify(self) -> DeviceIdentity:
        raw = bytes(self._calls("cuDeviceGetUuid", self._card).bytes)
        name = self._calls("cuDeviceGetName", _NAME_BYTES, self._card)
        self._uuid = str(uuid.UUID(bytes=raw))
        card = self._find_card()
        # CUDA gives the number alone; whether it is a card's or a MIG instance's, NVML knows.
        return DeviceIdentity(
            uuid=f"GPU-{self._uuid}" if card is None else card.uuid,
            name=name.split(b"\0")[0].decode(errors="replace").strip(),
            kind="cuda-vmm",
            is_emulated=False,
        )

    def _find_card(self) -> Card | None:
        cards = read_cards() or ()
        return next((card for card in cards if card.uuid.partition("-")[2] == self._uuid), None)

    def _make_properties(self, ordinal: int) -> Any:
        api = self._calls.api
        properties = api.CUmemAllocationProp()
        properties.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.requestedHandleTypes = (
            api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        )
        properties.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = ordinal
        return properties

    def _make_access(self) -> Any:
        access = self._calls.api.CUmemAccessDesc()
        access.location.type = self._properties.location.type
        access.location.id = self._properties.location.id
        access.flags = self._calls.api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        return access

    def _granularity(self) -> int:
        options = self._calls.api.CUmemAllocationGranularity_flags
        wanted = options.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        return int(self._calls("cuMemGetAllocationGranularity", self._properties, wanted))

    def _enter(self) -> None:
        """Contexts belong to threads, and we do not choose ours."""
        self._calls("cuCtxSetCurrent", self._context)

    def _address(self, extent: Extent, offset: int) -> Any:
        return self._calls.api.CUdeviceptr(self._find(extent).address + offset)

    def _find(self, extent: Extent) -> _Mapped:
        try:
            return self._extents[extent.number]
        except KeyError:
            raise DeviceError(f"there is no extent {extent.number}") from None

    def _quietly(self, name: str, *arguments: Any) -> None:
        """A lost card refuses even to take back; there is nothing more to do about it."""
        try:
            self._calls(name, *arguments)
        except DeviceError as error:
            _log.warning("%s", error)
