"""A few buffers on the way to a device, page-locked where that can be had.

Page-locking fails for reasons that have nothing to do with free memory (limits of the driver, of a
container, of maps), and may take minutes. So it is asked for a buffer at a time, in a thread of its
own, and waited for no longer than a moment; pageable memory takes its place, and that is said.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import torch

_FIRST_WAIT_SECONDS: Final = 1.0


class Event(Protocol):
    """A mark behind copies that were asked for."""

    def synchronize(self) -> None:
        """Wait until they are done."""
        ...


@dataclass(slots=True)
class Buffer:
    """`copies`: what the device may still read of it."""

    memory: torch.Tensor
    is_pinned: bool
    copies: Event | None = None


class RingStoppedError(Exception):
    """Somebody else failed: there is nothing to do any more."""


class StagingRing:
    """At most `count` buffers of `size_bytes` each, handed out in the order they came back in.

    Args:
        pin: makes a page-locked buffer. RuntimeError: it cannot be had.
        allocate: makes a pageable one.
        size_bytes: at least 1.
        count: at least 1.
    """

    def __init__(
        self,
        pin: Callable[[int], torch.Tensor],
        allocate: Callable[[int], torch.Tensor],
        size_bytes: int,
        count: int,
    ) -> None:
        if size_bytes < 1 or count < 1:
            raise ValueError("a ring needs buffers of at least one byte")
        self.failure: str | None = None
        """Why buffers are pageable, or fewer than they should be."""
        self._pin = pin
        self._allocate = allocate
        self._size = size_bytes
        self._count = count
        self._free: deque[Buffer] = deque()
        self._made = 0
        self._is_pinning = True
        self._is_pageable = False
        self._is_stopped = False
        self._changed = threading.Condition()
        self._wait_until = time.monotonic() + _FIRST_WAIT_SECONDS
        # A daemon: a driver that takes its time must not hold up the end of the process.
        threading.Thread(target=self._pin_all, name="modelcache-pins", daemon=True).start()

    def take(self) -> Buffer:
        """The buffer that came back first, when the device has read it.

        Raises:
            RingStoppedError: `stop` was called.
        """
        with self._changed:
            while True:
                if self._is_stopped:
                    raise RingStoppedError
                self._decide()
                if self._free:
                    buffer = self._free.popleft()
                    break
                if self._is_pageable and self._made < self._count:
                    self._made += 1
                    buffer = Buffer(self._allocate(self._size), is_pinned=False)
                    break
                self._changed.wait(None if self._made else self._wait_until - time.monotonic())
        if buffer.copies is not None:
            buffer.copies.synchronize()
            buffer.copies = None
        return buffer

    def give(self, buffer: Buffer, copies: Event | None) -> None:
        """Give it back; it is used again when these copies are done."""
        buffer.copies = copies
        with self._changed:
            self._free.append(buffer)
            self._changed.notify()

    def stop(self) -> None:
        """No more is handed out; what is being page-locked is given back when the driver ends."""
        with self._changed:
            self._is_stopped = True
            self._free.clear()
            self._changed.notify_all()

    def _decide(self) -> None:
        """Pageable from now on, if nothing else is there in time."""
        if self._made or self._is_pageable:
            return
        if self._is_pinning and time.monotonic() < self._wait_until:
            return
        self._is_pageable = True
        self.failure = self.failure or "page-locking takes long"

    def _pin_all(self) -> None:
        """One buffer after the other, until one fails or nobody needs it."""
        failure = None
        for _ in range(self._count):
            try:
                memory = self._pin(self._size)
            except RuntimeError as error:
                failure = str(error)
                break
            with self._changed:
                if self._is_stopped or self._is_pageable:
                    break
                self._made += 1
                # Before those that copies run from.
                self._free.appendleft(Buffer(memory, is_pinned=True))
                self._changed.notify()
        with self._changed:
            self._is_pinning = False
            if failure is not None:
                self.failure = self.failure or failure
            self._changed.notify_all()
