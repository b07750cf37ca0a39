"""The tensors of a content in device memory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache.errors import BadFileError, DeviceMapError
from modelcache.gpu.cuda_map import CudaMap
from modelcache.gpu.host_map import HostMap
from modelcache.header import Header, TensorInfo, read_header
from modelcache_api.device_layout import DeviceLayout, LayoutFormatError, PlacedFile, parse_layout

if TYPE_CHECKING:
    import torch

SUFFIX = ".safetensors"


class DeviceWeights:
    """Tensors by name. What is handed out keeps the map alive; nothing has to be closed.

    The map is read-only, against accidents: who writes to a tensor spoils his own CUDA context, or,
    where the device is emulated, ends his process. Copy a tensor before you change it.
    """

    def __init__(
        self,
        layout: DeviceLayout,
        mapped: CudaMap | HostMap,
        files: Collection[str] | None = None,
    ) -> None:
        self.layout = layout
        self._map = mapped
        self._headers: dict[str, Header] = {}
        self._places: dict[Path, PlacedFile] = {}
        for place in layout.files:
            if place.path.endswith(SUFFIX) and (files is None or place.path in files):
                self._open(place)

    def _open(self, place: PlacedFile) -> None:
        path = Path(place.path)
        header = read_header(path, _DeviceFile(self._map, place), place.size_bytes)
        for name in header.names():
            if name in self._headers:
                raise BadFileError(f"{path}: tensor {name!r} is in another file, too")
            self._headers[name] = header
        self._places[path] = place

    def __len__(self) -> int:
        return len(self._headers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __contains__(self, name: object) -> bool:
        return name in self._headers

    @property
    def is_emulated(self) -> bool:
        """True if no device is behind it, but host memory."""
        return self.layout.is_emulated

    @property
    def device(self) -> str:
        """Where torch finds the tensors: `cuda:<number>`, or `cpu` where the device is emulated."""
        return "cpu" if isinstance(self._map, HostMap) else f"cuda:{self._map.ordinal}"

    def info(self, name: str) -> TensorInfo:
        """Type, shape and place of a tensor; the offset counts from the map's begin, in bytes.

        Raises:
            KeyError, BadFileError: there is no such tensor, or its entry is invalid.
        """
        found = self._headers[name].info(name)
        return replace(found, offset=self._places[found.file].offset + found.offset)

    def copy_to_host(self, name: str) -> bytes:
        """The bytes of a tensor, in host memory. Raises as `info`, and DeviceMapError."""
        found = self.info(name)
        return self._map.read(found.offset, found.size_bytes)

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor on the device, on the shared memory.

        Raises:
            UnsupportedDtypeError: torch has no such type.
            DeviceMapError: torch cannot use this device.
        """
        return self._map.view(self.info(name))

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors by name. Raises as `tensor` does."""
        return {name: self.tensor(name) for name in self}


def import_weights(
    layout: DeviceLayout | bytes,
    descriptors: Sequence[int],
    files: Collection[str] | None = None,
) -> DeviceWeights:
    """Map what the agent exported. The descriptors are closed, whatever happens.

    Args:
        layout: as the agent sent it.
        descriptors: one for each extent, in the layout's order.
        files: whose tensors are wanted, by their paths in the model; None: all.

    Raises:
        DeviceMapError: the device cannot be used here; read the weights from the volume instead.
        BadFileError: a file is not what its header says.
    """
    try:
        found = parse_layout(layout) if isinstance(layout, bytes) else layout
        if len(descriptors) != len(found.extents):
            raise DeviceMapError(
                f"{len(descriptors)} descriptors came for {len(found.extents)} extents"
            )
        kind = HostMap if found.is_emulated else CudaMap
        return DeviceWeights(found, kind(found, descriptors), files)
    except LayoutFormatError as error:
        raise DeviceMapError(str(error)) from None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class _DeviceFile:
    """As much of a file as reading a header takes."""

    def __init__(self, mapped: CudaMap | HostMap, place: PlacedFile) -> None:
        self._map = mapped
        self._place = place
        self._position = 0

    def read(self, length: int) -> bytes:
        length = min(length, self._place.size_bytes - self._position)
        data = self._map.read(self._place.offset + self._position, length)
        self._position += length
        return data
