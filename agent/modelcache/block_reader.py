"""Blocks of files into memory: long runs by reading, short ones through the files' maps."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from modelcache.cuts import Block
from modelcache.errors import BadFileError
from modelcache.file_map import FileMap
from modelcache.torch_view import view_bytes

# Below this a system call for each run would cost more than its bytes.
_LONG_RUN_BYTES: Final = 64 << 10


class BlockReader:
    """Reads of any thread, without the interpreter's lock while bytes move.

    What lies between short runs is read from the disk, too, if it is not cached; nothing that
    belongs to other tensors is, with `is_part`.
    """

    def __init__(self, maps: Mapping[Path, FileMap], *, is_part: bool) -> None:
        self._maps = maps
        self._is_part = is_part
        self._descriptors: dict[Path, int] = {}
        self._lock = threading.Lock()

    def read(self, block: Block, target: torch.Tensor) -> None:
        """Fill `target`, bytes of the block's size.

        Raises:
            BadFileError: the file is not the one that was opened, or ends too early.
            OSError: it cannot be read.
        """
        fd = self._open(block.file)
        if block.counts and block.run_bytes < _LONG_RUN_BYTES:
            os.posix_fadvise(fd, block.offset, block.span_bytes, os.POSIX_FADV_WILLNEED)
            shape = (*block.counts, block.run_bytes)
            whole = view_bytes(self._maps[block.file].buffer)
            source = whole.as_strided(shape, (*block.strides_bytes, 1), block.offset)
            target.view(shape).copy_(source)
            return
        memory = (ctypes.c_char * block.size_bytes).from_address(target.data_ptr())
        view, done = memoryview(memory).cast("B"), 0
        for offset in block.runs():
            _fill(fd, block.file, offset, view[done : done + block.run_bytes])
            done += block.run_bytes

    def close(self) -> None:
        """Close the files, when nobody reads any more."""
        for fd in self._descriptors.values():
            os.close(fd)
        self._descriptors.clear()

    def _open(self, path: Path) -> int:
        with self._lock:
            if path not in self._descriptors:
                self._descriptors[path] = self._maps[path].reopen()
                if self._is_part:
                    # Else the kernel would read ahead, into tensors that nobody wants.
                    os.posix_fadvise(self._descriptors[path], 0, 0, os.POSIX_FADV_RANDOM)
            return self._descriptors[path]


def _fill(fd: int, path: Path, offset: int, view: memoryview) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], offset + done)
        if count == 0:
            raise BadFileError(f"{path}: it ends after {offset + done} bytes")
        done += count
