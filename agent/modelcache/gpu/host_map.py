"""An emulated device's memory in this process: memfds, one behind the other, read-only."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from modelcache.errors import DeviceMapError
from modelcache.header import TensorInfo
from modelcache_api.device_layout import DeviceLayout

if TYPE_CHECKING:
    import torch

_MAP_FIXED: Final = 0x10
_FAILED: Final = ctypes.c_void_p(-1).value


class HostMap:
    """The extents in one range of addresses, which lives as long as a view of it."""

    def __init__(self, layout: DeviceLayout, descriptors: Sequence[int]) -> None:
        # Python's map owns the range; the extents are mapped over it, and go with it.
        self._range = mmap.mmap(-1, layout.total_bytes)
        self.buffer = memoryview(self._range)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._range))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        ]
        offset = 0
        flags = mmap.MAP_SHARED | _MAP_FIXED
        for descriptor, size in zip(descriptors, layout.extents, strict=True):
            if os.fstat(descriptor).st_size < size:
                raise DeviceMapError(f"an extent has less than {size} bytes")
            found = libc.mmap(begin + offset, size, mmap.PROT_READ, flags, descriptor, 0)
            if found == _FAILED:
                text = os.strerror(ctypes.get_errno())
                raise DeviceMapError(f"an extent of {size} bytes cannot be mapped: {text}")
            offset += size

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the range."""
        return bytes(self.buffer[offset : offset + length])

    def view(self, info: TensorInfo) -> torch.Tensor:
        """The tensor on these pages. Raises UnsupportedDtypeError."""
        from modelcache.torch_view import view  # noqa: PLC0415 - torch only where it is used

        return view(info, self.buffer)
