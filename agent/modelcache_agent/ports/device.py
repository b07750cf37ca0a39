"""The memory of one device, as the GPU tier uses it.

DeviceError
├── DeviceUnavailableError    it cannot be used at all: no driver, another version, another kind
│   └── DeviceLostError       it was in use and is gone: whatever it held is gone, too
└── OutOfDeviceMemoryError    no room of that size, for now
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from modelcache_agent.decide.gpu.capacity import CardFigures
from modelcache_agent.decide.gpu.extents import ExtentRules


class DeviceError(Exception):
    """One sentence, with the driver's own text."""


class DeviceUnavailableError(DeviceError):
    """Nothing can be held there until somebody mends it."""


class DeviceLostError(DeviceUnavailableError):
    """The context is dead; the device has to be opened anew."""


class OutOfDeviceMemoryError(DeviceError):
    """The device refuses this size; a handled state, not a fault."""


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """`uuid` as NVML and the kubelet spell it; `kind` names the implementation."""

    uuid: str
    name: str
    kind: str
    is_emulated: bool


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of device memory that is exported as a whole. `number` is the device's own."""

    number: int
    size_bytes: int


class Staging(Protocol):
    """Buffers on the way to the device. Copies may run while the next buffer is filled."""

    @property
    def pageable_because(self) -> str | None:
        """Why copies go through memory that is not page-locked; None: they do not."""
        ...

    def take(self) -> memoryview:
        """The next buffer, free to be filled; it is valid until the next call."""
        ...

    def put(self, begin: int, length: int, extent: Extent, offset: int) -> None:
        """Copy a part of the buffer taken last. Raises DeviceError."""
        ...

    def finish(self) -> None:
        """Wait until all is there. Raises DeviceError."""
        ...


class Device(Protocol):
    """One card, or one MIG instance. Used by one thread at a time."""

    @property
    def identity(self) -> DeviceIdentity:
        """Which one it is."""
        ...

    @property
    def rules(self) -> ExtentRules:
        """What can be allocated."""
        ...

    def figures(self) -> CardFigures:
        """Its memory now. Raises DeviceUnavailableError."""
        ...

    def allocate(self, size_bytes: int, owner: str) -> Extent:
        """Memory for an owner's content alone. Raises OutOfDeviceMemoryError, DeviceError."""
        ...

    def staging(self) -> Staging:
        """Buffers for one load; each is as large as a piece of a manifest."""
        ...

    def read_back(self, extent: Extent, offset: int, into: memoryview) -> None:
        """Fill the buffer with what lies there. Raises DeviceError."""
        ...

    def export(self, extent: Extent) -> int:
        """A descriptor of the extent, close-on-exec; the caller closes it. Raises DeviceError."""
        ...

    def free(self, extent: Extent) -> None:
        """Let go of it; never raises. Whoever imported it keeps the bytes until he unmaps them."""
        ...

    def close(self) -> None:
        """Let go of everything; never raises."""
        ...


OpenDevice = Callable[[], Device]
"""Looks for the device anew. Raises DeviceUnavailableError."""
