"""How a content lies in a device's memory: what is said beside its descriptors. Pure.

The extents follow one another without a gap, so that whoever maps them in this order into one range
of addresses finds every file, and every tensor, in one piece.

LayoutFormatError    not such a document, or one that contradicts itself
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

FORMAT: Final = 1
MOST_EXTENTS: Final = 252
"""The kernel passes 253 descriptors in one message (SCM_MAX_FD); one of them is the layout."""
MAX_LAYOUT_BYTES: Final = 4 << 20


class LayoutFormatError(ValueError):
    """One sentence that says what is wrong."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file of the content: `offset` counts bytes from the first extent's begin."""

    path: str
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """One content on one device. `extents` are sizes in bytes, in the order of the descriptors.

    `device` is the UUID as NVML spells it (GPU-... or MIG-...); where the device is emulated, it
    names nothing but this emulation, and the descriptors are host memory.
    """

    device: str
    is_emulated: bool
    content_digest: str
    extents: tuple[int, ...]
    files: tuple[PlacedFile, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all extents."""
        return sum(self.extents)


def encode_layout(layout: DeviceLayout) -> bytes:
    """The layout as a JSON document."""
    document = {
        "format": FORMAT,
        "device": layout.device,
        "emulated": layout.is_emulated,
        "contentDigest": layout.content_digest,
        "extents": layout.extents,
        "files": [[file.path, file.offset, file.size_bytes] for file in layout.files],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def parse_layout(document: bytes) -> DeviceLayout:
    """The layout of a document. Raises LayoutFormatError."""
    if len(document) > MAX_LAYOUT_BYTES:
        raise LayoutFormatError(f"the layout has {len(document)} bytes, {MAX_LAYOUT_BYTES} may be")
    try:
        found = json.loads(document)
        if found["format"] != FORMAT:
            raise LayoutFormatError(
                f"the layout has format {found['format']!r}, this library reads {FORMAT}: "
                "use the library of the agent's release"
            )
        layout = _read(found)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, LayoutFormatError):
            raise
        raise LayoutFormatError("the layout is not what an agent writes") from None
    _check(layout)
    return layout


def _read(found: dict[str, Any]) -> DeviceLayout:
    return DeviceLayout(
        device=_text(found["device"]),
        is_emulated=found["emulated"] is True,
        content_digest=_text(found["contentDigest"]),
        extents=tuple(_count(size) for size in found["extents"]),
        files=tuple(
            PlacedFile(_text(path), _count(offset), _count(size))
            for path, offset, size in found["files"]
        ),
    )


def _check(layout: DeviceLayout) -> None:
    if not 0 < len(layout.extents) <= MOST_EXTENTS or 0 in layout.extents:
        raise LayoutFormatError(f"the layout has {len(layout.extents)} extents or an empty one")
    end = 0
    for file in sorted(layout.files, key=lambda file: file.offset):
        if file.offset < end or file.offset + file.size_bytes > layout.total_bytes:
            raise LayoutFormatError(f"file {file.path!r} overlaps another, or the end")
        end = file.offset + file.size_bytes


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError
    return value
