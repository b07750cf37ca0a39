"""Constants of the safetensors format, as its reference reader has them."""

from __future__ import annotations

from typing import Final

LENGTH_BYTES: Final = 8
"""The file begins with the header's length, little-endian."""

MAX_HEADER_BYTES: Final = 100_000_000
"""The reference reader refuses longer headers."""

DTYPE_BITS: Final = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits of one element, by the dtype's name in the header."""


def header_length(first_bytes: bytes) -> int:
    """The header's length as the first eight bytes state it, in bytes."""
    return int.from_bytes(first_bytes[:LENGTH_BYTES], "little")
