"""Page-locked buffers on the way to a card: few, small, and never waited for long.

Page-locking fails for reasons that have nothing to do with free memory (limits of the driver, of
a container, of maps), and may take minutes. So a ring of a few pieces is locked beside the first
load, in a thread of its own, and is kept; what is not there is replaced by pageable memory, and
that is said.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from modelcache_agent.ports.device import DeviceError, Extent
from modelcache_agent.tiers.gpu.cuda_calls import CudaCalls

_log = logging.getLogger(__name__)
BUFFERS: Final = 4
_FIRST_WAIT_SECONDS: Final = 1.0
_LAST_WAIT_SECONDS: Final = 5.0
_NON_BLOCKING: Final = 1
_NOT_YET: Final = "memory is being page-locked"

AddressOf = Callable[[Extent, int], Any]
"""Where a byte of an extent lies, as the driver's calls take it."""


@dataclass(slots=True)
class _Buffer:
    view: memoryview
    address: int
    stream: Any


@dataclass(slots=True)
class _Pool:
    """What is page-locked; written by the thread that locks, read by the one that copies."""

    buffers: list[_Buffer] = field(default_factory=list)
    failure: str | None = None
    first: threading.Event = field(default_factory=threading.Event)
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class PinnedRing:
    """Implements `ports.device.Staging`, for all loads of one device.

    Args:
        calls: the driver.
        enter: makes the device's context the calling thread's.
        address_of: where an extent's bytes lie.
        buffer_bytes: size of each buffer; 0 is refused.
        count: how many at most.
    """

    def __init__(
        self,
        calls: CudaCalls,
        enter: Callable[[], None],
        address_of: AddressOf,
        buffer_bytes: int,
        count: int = BUFFERS,
    ) -> None:
        if buffer_bytes <= 0 or count <= 0:
            raise ValueError("a ring needs buffers of at least one byte")
        self._calls = calls
        self._enter = enter
        self._address_of = address_of
        self._size = buffer_bytes
        self._count = count
        self._pool = _Pool()
        self._turn = 0
        self._taken: _Buffer | None = None
        self._pageable: memoryview | None = None
        self._locker: threading.Thread | None = None

    @property
    def pageable_because(self) -> str | None:
        """As the port says."""
        if self._pool.failure is not None:
            return self._pool.failure
        return None if self._pool.buffers else _NOT_YET

    @property
    def pinned_bytes(self) -> int:
        """What is page-locked now."""
        return self._size * len(self._pool.buffers)

    def take(self) -> memoryview:
        """As the port says. Waits for the first page-locked buffer a second, once."""
        if self._locker is None:
            self._locker = threading.Thread(target=self._lock_all, name="gpu-pins", daemon=True)
            self._locker.start()
            self._pool.first.wait(_FIRST_WAIT_SECONDS)
        ready = self._pool.buffers
        if not ready:
            if self._pageable is None:
                self._pageable = memoryview(bytearray(self._size))
            self._taken = None
            return self._pageable
        self._turn = (self._turn + 1) % len(ready)
        self._taken = ready[self._turn]
        self._calls("cuStreamSynchronize", self._taken.stream)
        return self._taken.view

    def put(self, begin: int, length: int, extent: Extent, offset: int) -> None:
        """As the port says."""
        target = self._address_of(extent, offset)
        if self._taken is None:
            if self._pageable is None:
                raise DeviceError("nothing was taken that could be copied")
            self._calls("cuMemcpyHtoD", target, self._pageable[begin : begin + length], length)
            return
        source = self._taken.address + begin
        self._calls("cuMemcpyHtoDAsync", target, source, length, self._taken.stream)

    def finish(self) -> None:
        """As the port says."""
        for buffer in tuple(self._pool.buffers):
            self._calls("cuStreamSynchronize", buffer.stream)

    def close(self) -> bool:
        """Give the memory back. False: a thread still locks some, and gives it back by itself."""
        with self._pool.lock:
            self._pool.is_closed = True
            for buffer in self._pool.buffers:
                self._release(buffer)
            self._pool.buffers.clear()
        if self._locker is not None:
            self._locker.join(_LAST_WAIT_SECONDS)
        return self._locker is None or not self._locker.is_alive()

    def _lock_all(self) -> None:
        """Lock one buffer after the other, until one fails."""
        try:
            self._enter()
            for _ in range(self._count):
                buffer = self._make()
                with self._pool.lock:
                    if self._pool.is_closed:
                        self._release(buffer)
                        return
                    self._pool.buffers.append(buffer)
                self._pool.first.set()
        except DeviceError as error:
            self._pool.failure = f"{len(self._pool.buffers)} of {self._count} buffers: {error}"
            _log.warning("not all copies to the GPU are page-locked: %s", self._pool.failure)
        finally:
            self._pool.first.set()

    def _make(self) -> _Buffer:
        address = self._calls("cuMemHostAlloc", self._size, 0)
        try:
            stream = self._calls("cuStreamCreate", _NON_BLOCKING)
        except DeviceError:
            self._calls("cuMemFreeHost", address)
            raise
        memory = (ctypes.c_char * self._size).from_address(int(address))
        return _Buffer(memoryview(memory).cast("B"), int(address), stream)

    def _release(self, buffer: _Buffer) -> None:
        for name, argument in (
            ("cuStreamDestroy", buffer.stream),
            ("cuMemFreeHost", buffer.address),
        ):
            try:
                self._calls(name, argument)
            except DeviceError as error:
                _log.warning("%s", error)
