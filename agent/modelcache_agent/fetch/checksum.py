"""The checksum of a whole file that its source states, computed in file order while it arrives.

Only where the bytes have no other witness: a file whose sha256 is known costs nothing more.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Protocol

import anycrc

from modelcache_api.checksums import Checksum, ChecksumAlgorithm, parse_checksum

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.fetch.job import FetchFile


class _Running(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc:
    """A CRC in the shape of hashlib's objects. `step` takes bytes and the value so far."""

    def __init__(self, step: Callable[[memoryview, int], int], size_bytes: int) -> None:
        self._step = step
        self._size_bytes = size_bytes
        self._value = 0

    def update(self, data: memoryview) -> None:
        self._value = self._step(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size_bytes, "big")


class RunningChecksum:
    """What the source states, and what the bytes so far come to."""

    def __init__(self, stated: Checksum) -> None:
        self._stated = stated
        self._running = _start(stated)

    def update(self, data: memoryview) -> None:
        """The next bytes of the file."""
        self._running.update(data)

    def describe_mismatch(self) -> str | None:
        """The source's word and ours, if they differ; call it once the file is complete."""
        found = Checksum(self._stated.algorithm, self._running.digest())
        if found == self._stated:
            return None
        return f"the bytes have the checksum {found}, the source states {self._stated}"


def start_checksum(file: FetchFile) -> RunningChecksum | None:
    """None where the source states none that we know, or the content is known."""
    if file.expected is not None or file.source.checksum is None:
        return None
    stated = parse_checksum(file.source.checksum)
    return None if stated is None else RunningChecksum(stated)


def _start(stated: Checksum) -> _Running:
    match stated.algorithm:
        case ChecksumAlgorithm.CRC64NVME:
            return _Crc(anycrc.Model("CRC64-NVME").calc, len(stated.value))
        case ChecksumAlgorithm.CRC32C:
            return _Crc(anycrc.Model("CRC32-ISCSI").calc, len(stated.value))
        case ChecksumAlgorithm.CRC32:
            return _Crc(zlib.crc32, len(stated.value))
        case ChecksumAlgorithm.SHA1:
            return hashlib.sha1(usedforsecurity=False)
