"""Copies to a device of CUDA, beside whatever runs there.

Experimental: run against a stand-in for torch's part of CUDA, never on a card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from modelcache.errors import NoDeviceError

if TYPE_CHECKING:
    from modelcache.staging_ring import Event


class CudaCopies:
    """One stream of copies to one card. Of any thread, but `begin`, which is the reader's own."""

    def __init__(self, device: torch.device) -> None:
        """Raises NoDeviceError."""
        if not torch.cuda.is_available():
            raise NoDeviceError(
                f"torch {torch.__version__} finds no card of CUDA for {str(device)!r}: take 'cpu', "
                "or tensors(), which shares the node's pages"
            )
        # Threads have a current card of their own, so it is named.
        index = torch.cuda.current_device() if device.index is None else device.index
        count = torch.cuda.device_count()
        if index >= count:
            raise NoDeviceError(f"there is no 'cuda:{index}': this process sees {count} cards")
        self._device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)

    def pin(self, size_bytes: int) -> torch.Tensor:
        """Page-locked memory of the host. RuntimeError: torch's, with its error state cleared."""
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def allocate(self, size_bytes: int) -> torch.Tensor:
        """Memory of the card. torch.OutOfMemoryError: it has no more."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self._device)

    def begin(self) -> None:
        """When all is allocated: after what the caller's stream still does with that memory."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Ask for a copy, and do not wait."""
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)

    def mark(self) -> Event:
        """Behind all that was asked for until now."""
        event: Event = self._stream.record_event()
        return event

    def finish(self) -> None:
        """Wait for all copies. RuntimeError: torch's, if one of them has failed."""
        self._stream.synchronize()
