"""The index of a version: the headers of its safetensors files, one after the other. Pure.

    MCINDEX1, then of each file, in the order of paths:
        u32 bytes of its path, u64 bytes of the file, u64 bytes of its header, path, header

Numbers are little-endian; paths are relative to the version's folder. Headers are the files' own
bytes, neither parsed nor judged, so making an index costs the agent no more than reading them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

INDEX_MAGIC: Final = b"MCINDEX1"
_HEAD: Final = struct.Struct("<IQQ")


class BadIndexError(ValueError):
    """The bytes are no index."""


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """One file: its size and where in the index its header lies, in bytes."""

    path: str
    size_bytes: int
    header_begin: int
    header_bytes: int


def encode_file_head(path: str, size_bytes: int, header_bytes: int) -> bytes:
    """What stands before a file's header."""
    name = path.encode()
    return _HEAD.pack(len(name), size_bytes, header_bytes) + name


def read_index(data: memoryview) -> Iterator[IndexedFile]:
    """The files of an index.

    Raises:
        BadIndexError: it contradicts itself.
    """
    if bytes(data[: len(INDEX_MAGIC)]) != INDEX_MAGIC:
        raise BadIndexError("it does not begin as an index")
    at = len(INDEX_MAGIC)
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise BadIndexError("it ends within a file's head")
        name_bytes, size, header_bytes = _HEAD.unpack_from(data, at)
        begin = at + _HEAD.size + name_bytes
        at = begin + header_bytes
        if at > len(data):
            raise BadIndexError("it ends within a file's header")
        try:
            path = str(data[begin - name_bytes : begin], "utf-8")
        except UnicodeDecodeError:
            raise BadIndexError("a path is not UTF-8") from None
        yield IndexedFile(path, size, begin, header_bytes)
