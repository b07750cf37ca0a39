"""Parts of tensors into memory of one's own: the host's, or a device's by a ring of buffers."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import torch

from modelcache.block_reader import BlockReader
from modelcache.cuts import FEWEST_READERS, MOST_READERS, Block, Cut, make_fills
from modelcache.device_copy import CudaCopies
from modelcache.errors import NoDeviceError, PageableWarning
from modelcache.file_map import FileMap
from modelcache.staging_ring import RingStoppedError, StagingRing
from modelcache.torch_view import find_dtype

# A power of two, because torch rounds page-locked memory up to one.
_BUFFER_BYTES: Final = 16 << 20

Fill = tuple[tuple[Block, int], ...]


def bring(
    cuts: Sequence[Cut],
    maps: Mapping[Path, FileMap],
    device: torch.device | str,
    *,
    readers: int,
    is_part: bool,
) -> tuple[dict[str, torch.Tensor], int]:
    """Tensors on the device by name, and how many bytes went there through pageable memory.

    Nothing is left on the device after an error.

    Raises:
        NoDeviceError: torch has no such device here, or it is none of cpu, cuda and meta.
        UnsupportedDtypeError, BadFileError, OSError: a tensor cannot be read.
        torch.OutOfMemoryError: there is no room for them.
    """
    if not FEWEST_READERS <= readers <= MOST_READERS:
        raise ValueError(f"readers={readers}: {FEWEST_READERS} to {MOST_READERS}")
    device = torch.device(device)
    for cut in cuts:
        find_dtype(cut.info)
    if device.type == "meta":
        return _shape(cuts, [_empty(cut.size_bytes, device) for cut in cuts]), 0
    reader = BlockReader(maps, is_part=is_part)
    try:
        if device.type == "cpu":
            targets = [_empty(cut.size_bytes, device) for cut in cuts]
            _to_host(make_fills(cuts, _BUFFER_BYTES), reader, targets, readers)
            return _shape(cuts, targets), 0
        if device.type == "cuda":
            copies = CudaCopies(device)
            targets = [copies.allocate(cut.size_bytes) for cut in cuts]
            pageable = _to_device(cuts, reader, copies, targets, readers)
            return _shape(cuts, targets), pageable
    finally:
        reader.close()
    raise NoDeviceError(f"{str(device)!r} is none of cpu, cuda and meta: copy tensors() there")


def _to_host(
    fills: Iterator[Fill], reader: BlockReader, targets: Sequence[torch.Tensor], readers: int
) -> None:
    turns = _Turns(fills)

    def work() -> None:
        for fill in turns:
            for block, _ in fill:
                reader.read(block, _part(targets, block))

    _run(work, readers, turns.stop)


def _to_device(
    cuts: Sequence[Cut],
    reader: BlockReader,
    copies: CudaCopies,
    targets: Sequence[torch.Tensor],
    readers: int,
) -> int:
    """Returns the bytes that went through pageable memory."""
    total = sum(cut.size_bytes for cut in cuts)
    if not total:
        return 0
    size = min(_BUFFER_BYTES, 1 << (total - 1).bit_length())
    readers = min(readers, -(-total // size))
    turns, pageable = _Turns(make_fills(cuts, size)), [0]
    ring = StagingRing(copies.pin, _empty, size, readers)

    def stop() -> None:
        turns.stop()
        ring.stop()

    def work() -> None:
        for fill in turns:
            buffer = ring.take()
            for block, at in fill:
                reader.read(block, buffer.memory[at : at + block.size_bytes])
            for block, at in fill:
                copies.copy(_part(targets, block), buffer.memory[at : at + block.size_bytes])
            if not buffer.is_pinned:
                pageable.append(sum(block.size_bytes for block, _ in fill))
            ring.give(buffer, copies.mark())

    copies.begin()
    try:
        _run(work, readers, stop)
    finally:
        # Also after an error: no copy may run from or into memory that is given back.
        copies.finish()
        ring.stop()
    if ring.failure is not None:
        warnings.warn(
            f"{sum(pageable)} of {total} bytes went to the device through pageable memory, which "
            f"is slower: {ring.failure}",
            PageableWarning,
            stacklevel=4,
        )
    return sum(pageable)


class _Turns:
    """Who asks gets the next one. Of any thread."""

    def __init__(self, fills: Iterator[Fill]) -> None:
        self._fills = fills
        self._lock = threading.Lock()
        self._is_stopped = False

    def __iter__(self) -> Iterator[Fill]:
        return self

    def __next__(self) -> Fill:
        with self._lock:
            if self._is_stopped:
                raise StopIteration
            return next(self._fills)

    def stop(self) -> None:
        self._is_stopped = True


def _run(work: Callable[[], None], count: int, stop: Callable[[], None]) -> None:
    """In so many threads; after the first error the others end with what they do. Raises it."""

    def guarded() -> None:
        try:
            work()
        except BaseException:
            stop()
            raise

    with ThreadPoolExecutor(count, "modelcache-readers") as pool:
        try:
            futures = [pool.submit(guarded) for _ in range(count)]
            errors = [error for each in futures if (error := each.exception()) is not None]
        except BaseException:
            stop()
            raise
    real = [error for error in errors if not isinstance(error, RingStoppedError)]
    if real:
        raise real[0]


def _part(targets: Sequence[torch.Tensor], block: Block) -> torch.Tensor:
    begin = block.target_offset
    return targets[block.target][begin : begin + block.size_bytes]


def _empty(size_bytes: int, device: torch.device | str = "cpu") -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device=device)


def _shape(cuts: Sequence[Cut], targets: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        cut.info.name: target.view(find_dtype(cut.info)).reshape(cut.shape)
        for cut, target in zip(cuts, targets, strict=True)
    }
