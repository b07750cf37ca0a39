"""A card's memory in this process: imported descriptors, one behind the other, read-only."""

from __future__ import annotations

import logging
import uuid
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from modelcache.errors import DeviceMapError
from modelcache.header import TensorInfo
from modelcache_api.device_layout import DeviceLayout

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)
_ARRAY_INTERFACE: Final = 3


class CudaMap:
    """The extents in one range of device addresses, which lives as long as a view of it."""

    def __init__(self, layout: DeviceLayout, descriptors: Sequence[int]) -> None:
        self._call = _Driver()
        self._call("cuInit", 0)
        self.ordinal, card = self._find_card(layout.device)
        context = self._context = self._call("cuDevicePrimaryCtxRetain", card)
        undo: list[tuple[str, Any]] = [("cuDevicePrimaryCtxRelease", (card,))]
        try:
            self._enter()
            self._address = self._map(layout, descriptors, undo)
        except DeviceMapError:
            _release(self._call, context, undo)
            raise
        self._end = weakref.finalize(self, _release, self._call, context, undo)
        # The end of the process frees all of it, in an order that is nobody's to choose.
        self._end.atexit = False

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the range, copied to the host. Raises DeviceMapError."""
        found = bytearray(length)
        if length:
            self._enter()
            self._call("cuMemcpyDtoH", found, self._pointer(offset), length)
        return bytes(found)

    def view(self, info: TensorInfo) -> torch.Tensor:
        """The tensor on the device. Raises UnsupportedDtypeError, DeviceMapError."""
        from modelcache.torch_view import view_on_device  # noqa: PLC0415 - torch only where used

        return view_on_device(info, self.array(info), f"cuda:{self.ordinal}")

    def array(self, info: TensorInfo) -> DeviceArray:
        """The tensor's bytes for any library that knows `__cuda_array_interface__`."""
        return DeviceArray(self, self._address + info.offset, info.size_bytes)

    def _find_card(self, wanted: str) -> tuple[int, Any]:
        """The card that holds the bytes, among those that this process sees."""
        seen: list[str] = []
        for ordinal in range(self._call("cuDeviceGetCount")):
            card = self._call("cuDeviceGet", ordinal)
            found = str(uuid.UUID(bytes=bytes(self._call("cuDeviceGetUuid", card).bytes)))
            if found == wanted.partition("-")[2]:
                return ordinal, card
            seen.append(found)
        raise DeviceMapError(
            f"the bytes are on {wanted}; this process sees {', '.join(seen) or 'no card'}"
        )

    def _map(
        self, layout: DeviceLayout, descriptors: Sequence[int], undo: list[tuple[str, Any]]
    ) -> int:
        api = self._call.api
        kind = api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        total = layout.total_bytes
        begin = int(self._call("cuMemAddressReserve", total, 0, api.CUdeviceptr(0), 0))
        undo.append(("cuMemAddressFree", (api.CUdeviceptr(begin), total)))
        offset = 0
        for descriptor, size in zip(descriptors, layout.extents, strict=True):
            handle = self._call("cuMemImportFromShareableHandle", descriptor, kind)
            target = api.CUdeviceptr(begin + offset)
            try:
                self._call("cuMemMap", target, size, 0, handle, 0)
                undo.append(("cuMemUnmap", (target, size)))
            finally:
                # The map keeps the memory.
                self._call("cuMemRelease", handle)
            offset += size
        access = api.CUmemAccessDesc()
        access.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self.ordinal
        access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        self._call("cuMemSetAccess", api.CUdeviceptr(begin), total, [access], 1)
        return begin

    def _enter(self) -> None:
        """Contexts belong to threads, and the caller may be in any."""
        self._call("cuCtxSetCurrent", self._context)

    def _pointer(self, offset: int) -> Any:
        return self._call.api.CUdeviceptr(self._address + offset)


class DeviceArray:
    """Bytes on the device; keeps their map alive."""

    def __init__(self, owner: CudaMap, address: int, size_bytes: int) -> None:
        self._owner = owner
        # The read-only flag would be true, but torch takes no array that carries it.
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": _ARRAY_INTERFACE,
        }


class _Driver:
    """The functions of `cuda.bindings.driver`, each answer checked."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver  # noqa: PLC0415 - 30 MB, only with a device
        except ImportError as error:
            raise DeviceMapError(
                f"cuda-bindings cannot be imported ({error}): install modelcache[gpu]"
            ) from None
        self.api: Any = driver

    def __call__(self, name: str, *arguments: Any) -> Any:
        try:
            error, *values = getattr(self.api, name)(*arguments)
        except RuntimeError as missing:
            raise DeviceMapError(f"no driver of CUDA that knows {name}: {missing}") from None
        if error != self.api.CUresult.CUDA_SUCCESS:
            raise DeviceMapError(f"{name}: {getattr(error, 'name', error)}")
        return values[0] if values else None


def _release(call: _Driver, context: Any, undo: list[tuple[str, Any]]) -> None:
    """Give all back, the last first. Kernels that still read are waited for."""
    steps = [("cuCtxSetCurrent", (context,)), ("cuCtxSynchronize", ()), *reversed(undo)]
    for name, arguments in steps:
        try:
            call(name, *arguments)
        except DeviceMapError as error:
            _log.warning("while device memory was given back: %s", error)
