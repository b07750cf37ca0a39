"""The header of a safetensors file: which tensor lies where.

A verified file needs no second check of its structure as a whole, so opening one with a million
tensors costs no pass over them: a tensor's entry is judged when it is asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import KeysView
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from modelcache.errors import BadFileError
from modelcache_api.safetensors_format import (
    DTYPE_BITS,
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    header_length,
)

_METADATA: Final = "__metadata__"


class Readable(Protocol):
    """A file, or whatever holds one."""

    def read(self, length: int, /) -> bytes:
        """The next bytes, at most so many; none at the end."""
        ...


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `dtype` in safetensors' words, `offset` and `size_bytes` within `file`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    size_bytes: int


class Header:
    """The header of one file."""

    def __init__(self, path: Path, tensors: dict[str, Any], data_begin: int, size: int) -> None:
        self.path = path
        self._tensors = tensors
        self._data_begin = data_begin
        self._size = size
        metadata = tensors.pop(_METADATA, None)
        self.metadata: dict[str, str] = metadata if isinstance(metadata, dict) else {}

    def names(self) -> KeysView[str]:
        """Names of the tensors, in the order of the header."""
        return self._tensors.keys()

    def info(self, name: str) -> TensorInfo:
        """Where a tensor lies.

        Raises:
            KeyError: the file has no such tensor.
            BadFileError: its entry contradicts itself or the file.
        """
        entry = self._tensors[name]
        try:
            dtype, shape = entry["dtype"], tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            size = _size_bytes(dtype, shape)
            fits = 0 <= begin <= end <= self._size - self._data_begin
        except (KeyError, TypeError, ValueError):
            raise BadFileError(f"{self.path}: the entry of tensor {name!r} is invalid") from None
        if not fits or end - begin != size:
            raise BadFileError(
                f"{self.path}: tensor {name!r} claims bytes {begin} to {end}, its shape needs "
                f"{size} and the file has {self._size - self._data_begin}"
            )
        return TensorInfo(name, dtype, shape, self.path, self._data_begin + begin, size)


def read_header(path: Path, file: Readable, size: int) -> Header:
    """Read it from the beginning of an open file of `size` bytes.

    Raises:
        BadFileError: it is not safetensors, or longer than the format allows (100,000,000 bytes).
    """
    length = header_length(_read_exactly(path, file, LENGTH_BYTES))
    if length > MAX_HEADER_BYTES:
        raise BadFileError(
            f"{path}: its header claims {length} bytes, safetensors allows {MAX_HEADER_BYTES}"
        )
    if LENGTH_BYTES + length > size:
        raise BadFileError(f"{path}: its header claims {length} bytes, the file has only {size}")
    return parse_header(path, _read_exactly(path, file, length), LENGTH_BYTES + length, size)


def parse_header(path: Path, body: bytes, data_begin: int, size: int) -> Header:
    """The header of a file of `size` bytes with its data from `data_begin` on.

    Raises:
        BadFileError: it is not one of safetensors.
    """
    try:
        tensors = json.loads(body)
    except (ValueError, RecursionError):
        raise BadFileError(f"{path}: its safetensors header is not JSON") from None
    if not isinstance(tensors, dict):
        raise BadFileError(f"{path}: its safetensors header is not an object")
    return Header(path, tensors, data_begin, size)


def _size_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor. Raises KeyError or ValueError for what cannot be one."""
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("a size of the shape is none")
    whole, rest = divmod(math.prod(shape) * DTYPE_BITS[dtype], 8)
    if rest:
        raise ValueError("a tensor does not end on a whole byte")
    return whole


def _read_exactly(path: Path, file: Readable, length: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < length:
        piece = file.read(length - len(pieces))
        if not piece:
            raise BadFileError(f"{path}: it ends after {len(pieces)} bytes of its header")
        pieces += piece
    return bytes(pieces)
