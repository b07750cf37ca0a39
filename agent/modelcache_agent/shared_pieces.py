"""Tensors that another version of the same source brought to this node are not fetched again.

They are copied into the partial file piece by piece, each read verified.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from modelcache_agent.decide.shared_plan import Copy, plan_pieces
from modelcache_agent.decide.transfer_plan import count_pieces, piece_length
from modelcache_agent.fetch.journal import JournalHeader
from modelcache_agent.fetch.partial import PARTIAL_SUFFIX, file_stem
from modelcache_agent.head_start import give_head_start
from modelcache_agent.tiers.disk import DiskStore
from modelcache_agent.tiers.known_pieces import find_pieces
from modelcache_api.manifest import PIECE_BYTES, SourceFile
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import SharedBytes


class _WrongBytesError(Exception):
    """A blob is not what was recorded of it; the scrub finds and names it."""


class _Blob:
    """A verified file of the store, of which nothing is believed before its piece is hashed."""

    def __init__(
        self, path: Path, size_bytes: int, pieces: Sequence[str], stack: ExitStack
    ) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        stack.callback(os.close, self._fd)
        self._size = size_bytes
        self._pieces = pieces
        self._held: tuple[int, bytes] | None = None

    def read(self, offset: int, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            piece, begin = divmod(offset + len(found), PIECE_BYTES)
            found += self._piece(piece)[begin : begin + length - len(found)]
        return bytes(found)

    def _piece(self, piece: int) -> bytes:
        if self._held is None or self._held[0] != piece:
            length, offset = piece_length(self._size, piece), piece * PIECE_BYTES
            data = os.pread(self._fd, length, offset)
            os.posix_fadvise(self._fd, offset, length, os.POSIX_FADV_DONTNEED)
            if blake3(data).hexdigest() != self._pieces[piece]:
                raise _WrongBytesError
            self._held = (piece, data)
        return self._held[1]


@dataclass(frozen=True, slots=True)
class SharedPieces:
    """One file to be made in part of others; `blobs` and their pieces are in the parts' order."""

    partial: Path
    header: JournalHeader
    pieces: Mapping[int, tuple[bytes | Copy, ...]]
    blobs: tuple[tuple[Path, int, tuple[str, ...]], ...]

    def run(self, must_stop: Callable[[], bool]) -> None:
        """Copy the pieces. What cannot be copied is fetched, so nothing here is an error."""
        give_head_start(
            self.partial,
            self.header,
            lambda target: self._copy(target, must_stop),
            must_stop,
            "taken from other versions",
        )

    def _copy(self, target: Path, must_stop: Callable[[], bool]) -> dict[int, bytes]:
        copied: dict[int, bytes] = {}
        with ExitStack() as stack:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            own = os.open(target, flags, 0o600)
            stack.callback(os.close, own)
            os.posix_fallocate(own, 0, self.header.size_bytes)
            blobs = [_Blob(*blob, stack) for blob in self.blobs]
            for piece, parts in self.pieces.items():
                if must_stop():
                    break
                try:
                    data = b"".join(
                        blobs[part.source].read(part.offset, part.length)
                        if isinstance(part, Copy)
                        else part
                        for part in parts
                    )
                except _WrongBytesError:
                    continue
                _write(own, data, piece * PIECE_BYTES)
                copied[piece] = blake3(data).digest()
            os.fsync(own)
            # The engine reads the device when it proves the pieces; the cache is for others.
            os.posix_fadvise(own, 0, 0, os.POSIX_FADV_DONTNEED)
        return copied


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def find_shared_pieces(
    store: DiskStore,
    entry: EntrySpec,
    missing: Sequence[SourceFile],
    shared: Mapping[str, tuple[SharedBytes, ...]],
) -> tuple[SharedPieces, ...]:
    """The files that no partial file stands for yet, and that others here have bytes of.

    Raises:
        OSError, ValueError: the record of another version cannot be read.
    """
    found = []
    for file in missing:
        stem = store.layout.partial / entry.uid / file_stem(file.path)
        partial = stem.with_suffix(PARTIAL_SUFFIX)
        here = [one for one in shared.get(file.path, ()) if _is_sound(one)]
        blobs = {one.sha256: store.find_blob(one.sha256, one.size_bytes) for one in here}
        pieces = {sha256: find_pieces(store, sha256) for sha256, blob in blobs.items() if blob}
        usable = [
            one for one in here if len(pieces.get(one.sha256, ())) == count_pieces(one.size_bytes)
        ]
        if not usable or partial.exists():
            continue
        planned = plan_pieces(file, usable)
        if planned:
            header = JournalHeader.of(entry.uid, entry.source_digest, file)
            opened = tuple(
                (path, one.size_bytes, pieces[one.sha256])
                for one in usable
                if (path := blobs[one.sha256]) is not None
            )
            found.append(SharedPieces(partial, header, planned, opened))
    return tuple(found)


def _is_sound(shared: SharedBytes) -> bool:
    taken = sum(end - start for start, end in shared.ranges)
    is_ordered = all(start < end for start, end in shared.ranges)
    return is_ordered and shared.skip + taken == shared.size_bytes
