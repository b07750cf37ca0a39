"""Indexes of versions as sealed memory: one copy for all clients, which nobody can change."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelcache_agent.decide.socket_rules import MOST_INDEX_BYTES
from modelcache_agent.socket.counters import SocketCounters
from modelcache_api.names import SocketReason
from modelcache_api.safetensors_format import LENGTH_BYTES, MAX_HEADER_BYTES, header_length
from modelcache_api.volume_index import INDEX_MAGIC, encode_file_head
from modelcache_api.volume_socket import SocketProtocolError

_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
# Linux 6.3; Python does not name it.
_MFD_NOEXEC_SEAL: Final = 0x8
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SealedIndex:
    """A descriptor that this process keeps, and the bytes behind it."""

    descriptor: int
    size_bytes: int

    def reopen(self) -> int:
        """A descriptor to give away: read-only, with a position of its own."""
        return os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)


class Indexes:
    """By content, as long as a volume shows it; made one at a time."""

    def __init__(self, counters: SocketCounters) -> None:
        self._counters = counters
        self._made: dict[str, SealedIndex] = {}
        self._making: asyncio.Task[SealedIndex] | None = None

    async def get(self, digest: str, model: Path) -> SealedIndex:
        """The index of the content that lies complete at `model`.

        Raises:
            SocketProtocolError: IndexTooLarge, or the disk refuses.
        """
        while digest not in self._made:
            if self._making is None:
                self._making = asyncio.create_task(self._make(digest, model), name="index")
                # Whoever asks may go meanwhile; the descriptor must not be lost with it.
                return await asyncio.shield(self._making)
            await asyncio.wait((self._making,))
        return self._made[digest]

    async def _make(self, digest: str, model: Path) -> SealedIndex:
        room = MOST_INDEX_BYTES - self._counters.index_bytes
        try:
            made = await asyncio.to_thread(make_index, model, room)
        except OSError as error:
            raise SocketProtocolError(
                SocketReason.STORE_ERROR, f"the files cannot be read: {error.strerror}"
            ) from error
        finally:
            self._making = None
        self._made[digest] = made
        self._counters.indexes += 1
        self._counters.index_bytes += made.size_bytes
        return made

    def keep(self, digests: Iterable[str]) -> None:
        """Forget the others. Clients keep what they were given."""
        for digest in self._made.keys() - set(digests):
            gone = self._made.pop(digest)
            self._counters.index_bytes -= gone.size_bytes
            os.close(gone.descriptor)


def make_index(model: Path, most_bytes: int) -> SealedIndex:
    """The headers of all safetensors files below the folder.

    Raises:
        SocketProtocolError: they are more than `most_bytes`.
        OSError: a file cannot be read.
    """
    descriptor = _create()
    try:
        size = _fill(descriptor, model, most_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return SealedIndex(descriptor, size)


def seal_bytes(data: bytes) -> int:
    """A descriptor of these bytes, which nobody can change; the caller closes it."""
    descriptor = _create()
    try:
        _write(descriptor, data)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _fill(descriptor: int, model: Path, most_bytes: int) -> int:
    size = 0
    for piece in _pieces(model):
        size += len(piece)
        if size > most_bytes:
            raise SocketProtocolError(
                SocketReason.INDEX_TOO_LARGE,
                f"indexes of this node may take {MOST_INDEX_BYTES} bytes together: read the "
                "headers from the files",
            )
        _write(descriptor, piece)
    return size


def _create() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("modelcache-index", flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("modelcache-index", flags)


def _pieces(model: Path) -> Iterator[bytes]:
    yield INDEX_MAGIC
    for path in sorted(model.rglob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            length = header_length(file.read(LENGTH_BYTES))
            if length > min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
                # Not a file of the format, whatever its name says: readers will find that, too.
                continue
            yield encode_file_head(path.relative_to(model).as_posix(), size, length)
            while length:
                piece = file.read(min(length, _CHUNK_BYTES))
                if not piece:
                    raise OSError(errno.EIO, "a file ended within its header")
                length -= len(piece)
                yield piece


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
