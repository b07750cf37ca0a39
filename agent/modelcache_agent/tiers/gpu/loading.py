"""Bytes into a device, each checked on the way, and read back from it.

ContentChangedError    what was read is not what the record says
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from blake3 import blake3

from modelcache_agent.decide.gpu.extents import cut_extents, find_spans
from modelcache_agent.decide.transfer_plan import count_pieces, piece_length
from modelcache_agent.ports.device import Device, DeviceError, Extent, Staging
from modelcache_agent.tiers.gpu.contents import Content, Loaded, Source
from modelcache_api.device_layout import PlacedFile
from modelcache_api.manifest import PIECE_BYTES


class ContentChangedError(Exception):
    """A file, or the device's copy of it, is not what was verified; it names the file."""


def planned_extents(device: Device, placed: tuple[PlacedFile, ...]) -> tuple[int, ...]:
    """Sizes of the extents for files that lie so."""
    return cut_extents(max(file.offset + file.size_bytes for file in placed), device.rules)


def load(device: Device, content: Content, placed: tuple[PlacedFile, ...]) -> Loaded:
    """Fill new extents with the content. On any error nothing of it stays in the device.

    Raises:
        OutOfDeviceMemoryError, DeviceError: see there.
        ContentChangedError: a file is not what was verified.
        OSError: a file cannot be read.
    """
    sizes = planned_extents(device, placed)
    with _allocated(device, sizes, content.key.namespace) as extents:
        staging = device.staging()
        try:
            pieces = tuple(
                _load_file(source, place, sizes, extents, staging)
                for source, place in zip(content.weights(), placed, strict=True)
            )
        finally:
            # Also after an error: no copy may run into memory that is given back.
            staging.finish()
        loaded = Loaded(content, extents, placed, pieces)
        verify(device, loaded)
        return loaded


def verify(device: Device, loaded: Loaded) -> None:
    """Read all of it back. Raises ContentChangedError, DeviceError."""
    buffer = memoryview(bytearray(PIECE_BYTES))
    sizes = tuple(extent.size_bytes for extent in loaded.extents)
    for place, pieces in zip(loaded.placed, loaded.pieces, strict=True):
        for number, expected in enumerate(pieces):
            length = piece_length(place.size_bytes, number)
            done = 0
            for span in find_spans(sizes, place.offset + number * PIECE_BYTES, length):
                view = buffer[done : done + span.length]
                device.read_back(loaded.extents[span.extent], span.offset, view)
                done += span.length
            if _hash(buffer[:length]) != expected:
                raise ContentChangedError(f"{place.path}: the device holds other bytes")


@contextmanager
def _allocated(device: Device, sizes: tuple[int, ...], owner: str) -> Iterator[tuple[Extent, ...]]:
    extents: list[Extent] = []
    try:
        for size in sizes:
            # One by one: what is there already goes back if the next one fails.
            extents.append(device.allocate(size, owner))  # noqa: PERF401
        yield tuple(extents)
    except (DeviceError, ContentChangedError, OSError):
        for extent in extents:
            device.free(extent)
        raise


def _load_file(
    source: Source,
    place: PlacedFile,
    sizes: tuple[int, ...],
    extents: tuple[Extent, ...],
    staging: Staging,
) -> tuple[str, ...]:
    """Copy it piece by piece; the pieces' blake3. Without recorded pieces the whole is hashed."""
    known = source.content.pieces
    whole = None if known else hashlib.sha256()
    found: list[str] = []
    fd = os.open(source.location, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for number in range(count_pieces(place.size_bytes)):
            length = piece_length(place.size_bytes, number)
            view = staging.take()[:length]
            _fill(fd, view, number * PIECE_BYTES, place.path)
            found.append(_hash(view))
            if known and found[-1] != known[number]:
                raise ContentChangedError(f"{place.path}: piece {number} is not what was verified")
            if whole is not None:
                whole.update(view)
            done = 0
            for span in find_spans(sizes, place.offset + number * PIECE_BYTES, length):
                staging.put(done, span.length, extents[span.extent], span.offset)
                done += span.length
    finally:
        os.close(fd)
    if whole is not None and whole.hexdigest() != source.content.sha256:
        raise ContentChangedError(f"{place.path}: the file is not what was verified")
    return tuple(found)


def _fill(fd: int, view: memoryview, offset: int, path: str) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], offset + done)
        if count == 0:
            raise ContentChangedError(f"{path}: it ends after {offset + done} bytes")
        done += count


def _hash(view: memoryview) -> str:
    return blake3(view, max_threads=blake3.AUTO).hexdigest()
