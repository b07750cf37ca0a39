"""Checksums that a store states of whole objects, other than sha256: pure.

Written as `<algorithm>:<base64>`, the way the store's own tools show the value.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ChecksumAlgorithm(StrEnum):
    """Those that are known, the ones that cost least first."""

    CRC64NVME = "crc64nvme"
    CRC32C = "crc32c"
    CRC32 = "crc32"
    SHA1 = "sha1"


_BYTES: Final = {
    ChecksumAlgorithm.CRC64NVME: 8,
    ChecksumAlgorithm.CRC32C: 4,
    ChecksumAlgorithm.CRC32: 4,
    ChecksumAlgorithm.SHA1: 20,
}


@dataclass(frozen=True, slots=True)
class Checksum:
    """A value of one algorithm. CRCs are big-endian."""

    algorithm: ChecksumAlgorithm
    value: bytes

    def __str__(self) -> str:
        return f"{self.algorithm}:{base64.b64encode(self.value).decode()}"


def decode_checksum(algorithm: ChecksumAlgorithm, text: str) -> Checksum | None:
    """The checksum that a store states in base64, or None if it is none of that algorithm."""
    value = decode_base64(text, _BYTES[algorithm])
    return None if value is None else Checksum(algorithm, value)


def decode_base64(text: str, size_bytes: int) -> bytes | None:
    """So many bytes, or None if the text is not exactly those."""
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return value if len(value) == size_bytes else None


def parse_checksum(text: str) -> Checksum | None:
    """Back from its text. None for an algorithm of newer versions, and for anything else."""
    name, _, value = text.partition(":")
    try:
        algorithm = ChecksumAlgorithm(name)
    except ValueError:
        return None
    return decode_checksum(algorithm, value)
