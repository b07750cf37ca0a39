"""The engine's whole memory for bytes in flight: a fixed set of piece-sized, page-aligned maps."""

from __future__ import annotations

import contextlib
import mmap
from typing import Final

from modelcache_api.manifest import PIECE_BYTES

# O_DIRECT wants memory, offset and length aligned to the device's block; 4 KiB suits all known.
ALIGNMENT: Final = 4096


class Buffer:
    """Memory for one piece. Anonymous maps are page-aligned, as O_DIRECT demands."""

    __slots__ = ("map", "view")

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, PIECE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # O_DIRECT pins every page it writes from: 4 huge ones instead of 2,048.
        with contextlib.suppress(OSError):  # a kernel without them
            self.map.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self.map)


class BufferPool:
    """Free buffers. Not thread-safe: the scheduler's lock guards it."""

    def __init__(self, buffer_bytes: int, streams: int) -> None:
        self._left = max(streams, buffer_bytes // PIECE_BYTES)
        self._free: list[Buffer] = []

    def take(self) -> Buffer | None:
        """A free buffer, the one used last first (its memory is warm); None if all are in use."""
        if self._free:
            return self._free.pop()
        if self._left == 0:
            return None
        self._left -= 1
        return Buffer()

    def give_back(self, buffer: Buffer) -> None:
        """Return a buffer that `take` handed out."""
        self._free.append(buffer)
