"""Reading files into locked memory, by several threads, comparing pieces with their records.

LoadError
├── HeldByReadersError   pages are cached that others may be charged for
├── DamagedError         a piece is not what was recorded
└── StoppedError         nobody wants it any more
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blake3 import blake3

from modelcache_agent.decide.transfer_plan import count_pieces, piece_length
from modelcache_agent.tiers.host.pages import FileMap
from modelcache_agent.tiers.reading import BYTES_ARE_LOST
from modelcache_api.manifest import PIECE_BYTES

# More gain nothing on one disk; reading and hashing overlap from two on.
LOAD_THREADS: Final = 4


class LoadError(Exception):
    """Why a content is not locked."""


class HeldByReadersError(LoadError):
    """`held_bytes` of it are cached and do not go."""

    def __init__(self, held_bytes: int) -> None:
        super().__init__(f"{held_bytes} bytes are held by readers")
        self.held_bytes = held_bytes


class DamagedError(LoadError):
    """This piece of the blob is not what was recorded."""

    def __init__(self, blob: str, piece: int) -> None:
        super().__init__(f"piece {piece} of {blob} is damaged")
        self.blob = blob
        self.piece = piece


class StoppedError(LoadError):
    """The caller asked to stop."""


@dataclass(frozen=True, slots=True)
class LoadFile:
    """One file to lock. `pieces` are the blake3 of its pieces, none if they are not known."""

    blob: str
    path: Path
    size_bytes: int
    sha256: str
    pieces: tuple[str, ...]


def lock_pieces(
    files: Sequence[tuple[LoadFile, FileMap]],
    verified: frozenset[str],
    should_stop: Callable[[], bool],
    *,
    threads: int = LOAD_THREADS,
    populate: bool = True,
) -> None:
    """Lock all pages of the files; all but those that are `verified` already are hashed.

    A piece is hashed after it was locked, so that what was found right is what readers get.

    Raises:
        DamagedError, StoppedError: parts may be locked; the caller closes the maps.
        OSError: the disk cannot be read, or no more may be locked.
    """
    stopping = threading.Event()

    def work(file: LoadFile, pages: FileMap, piece: int) -> None:
        if stopping.is_set() or should_stop():
            raise StoppedError
        _lock(file, pages, piece, populate=populate)
        if file.blob not in verified and len(file.pieces) == count_pieces(file.size_bytes):
            with _view(file, pages, piece) as view:
                found = blake3(view).hexdigest()
            if found != file.pieces[piece]:
                raise DamagedError(file.blob, piece)

    with ThreadPoolExecutor(threads, thread_name_prefix="host") as pool:
        begun = [
            pool.submit(work, file, pages, piece)
            for file, pages in files
            if file.size_bytes
            for piece in range(count_pieces(file.size_bytes))
        ]
        try:
            for part in begun:
                part.result()
        except BaseException:
            stopping.set()
            raise
    for file, pages in files:
        if file.blob not in verified and len(file.pieces) != count_pieces(file.size_bytes):
            _check_whole(file, pages)


def _lock(file: LoadFile, pages: FileMap, piece: int, *, populate: bool) -> None:
    length = piece_length(file.size_bytes, piece)
    try:
        pages.lock(piece * PIECE_BYTES, length, populate=populate)
    except OSError as error:
        if error.errno not in BYTES_ARE_LOST:
            raise
        raise DamagedError(file.blob, piece) from error


def _view(file: LoadFile, pages: FileMap, piece: int) -> memoryview:
    return pages.view(piece * PIECE_BYTES, piece_length(file.size_bytes, piece))


def _check_whole(file: LoadFile, pages: FileMap) -> None:
    """Without hashes of pieces, the whole is compared with the digest that names it."""
    whole = hashlib.sha256()
    for piece in range(count_pieces(file.size_bytes)):
        if file.size_bytes:
            with _view(file, pages, piece) as view:
                whole.update(view)
    if whole.hexdigest() != file.sha256:
        raise DamagedError(file.blob, 0)
