"""What is to be loaded into a device, and what was."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelcache_agent.decide.gpu.extents import FileShape, place_files
from modelcache_agent.decide.gpu.room import Key
from modelcache_agent.ports.device import Extent
from modelcache_api.device_layout import PlacedFile
from modelcache_api.manifest import ContentFile
from modelcache_api.safetensors_format import LENGTH_BYTES, header_length

SUFFIX: Final = ".safetensors"
"""Only tensors are of use on a device; everything else is read from the volume."""


@dataclass(frozen=True, slots=True)
class Source:
    """A verified file on this node: its content, and where it lies."""

    content: ContentFile
    location: Path


@dataclass(frozen=True, slots=True)
class Content:
    """One version's weights, of one namespace."""

    key: Key
    digest: str
    files: tuple[Source, ...]

    def weights(self) -> tuple[Source, ...]:
        """The files that go to a device."""
        return tuple(file for file in self.files if file.content.path.endswith(SUFFIX))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Verified bytes in a device. `pieces` holds the blake3 of each piece of each file."""

    content: Content
    extents: tuple[Extent, ...]
    placed: tuple[PlacedFile, ...]
    pieces: tuple[tuple[str, ...], ...]

    @property
    def size_bytes(self) -> int:
        """Device memory that it takes."""
        return sum(extent.size_bytes for extent in self.extents)


def place_content(content: Content) -> tuple[PlacedFile, ...]:
    """Where its files will lie. Raises OSError if one cannot be read."""
    return place_files(
        FileShape(file.content.path, file.content.size_bytes, _data_begin(file.location))
        for file in content.weights()
    )


def _data_begin(location: Path) -> int:
    """Where the tensors begin. A header that makes no sense costs alignment, nothing else."""
    with location.open("rb", buffering=0) as file:
        first = file.read(LENGTH_BYTES)
        begin = LENGTH_BYTES + header_length(first)
        return begin if begin <= os.fstat(file.fileno()).st_size else 0
