"""The sidecar of a partial file: what it belongs to, and which pieces were finished.

One header line, then one line for each finished piece, appended after the piece was written. It is
a hint, never a proof: pieces it names are read back and hashed before they count.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.transfer_plan import count_pieces
from modelcache_api.manifest import PIECE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from modelcache_api.manifest import SourceFile

_FORMAT: Final = 1
_HEX_LENGTH: Final = 64
# A line is `<index> <hash>\n`; a piece may be written down again after it was found damaged.
_LINE_BYTES: Final = 90
_MAX_REWRITES: Final = 4
_HEADER_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """Everything that must be equal for a partial file to be of use."""

    uid: str
    source_digest: str
    path: str
    size_bytes: int
    etag: str | None
    version_id: str | None

    @classmethod
    def of(cls, uid: str, source_digest: str, source: SourceFile) -> JournalHeader:
        """The header for this file of this job."""
        return cls(
            uid, source_digest, source.path, source.size_bytes, source.etag, source.version_id
        )

    def line(self) -> bytes:
        """The first line of the sidecar; equal for equal headers."""
        fields = {
            "format": _FORMAT,
            "uid": self.uid,
            "sourceDigest": self.source_digest,
            "path": self.path,
            "sizeBytes": self.size_bytes,
            "etag": self.etag,
            "versionId": self.version_id,
            "pieceBytes": PIECE_BYTES,
        }
        return json.dumps(fields, sort_keys=True).encode() + b"\n"


class Journal:
    """Appends finished pieces. One thread at a time may append; each append is one write."""

    def __init__(self, path: Path, header: JournalHeader) -> None:
        self._path = path
        self._header = header
        self._fd = -1

    def load(self) -> dict[int, bytes] | None:
        """Finished pieces with their blake3, the last word on each; None if it is not ours."""
        pieces = count_pieces(self._header.size_bytes)
        limit = _HEADER_BYTES + pieces * _LINE_BYTES * _MAX_REWRITES
        try:
            with self._path.open("rb") as file:
                data = file.read(limit)
        except FileNotFoundError:
            return None
        first, newline, rest = data.partition(b"\n")
        if first + newline != self._header.line():
            return None
        found: dict[int, bytes] = {}
        for line in rest.split(b"\n")[:-1]:
            piece = _parse(line, pieces)
            if piece is None:
                break  # a torn line: nothing behind it can be relied on
            found[piece[0]] = piece[1]
        return found

    def start(self) -> None:
        """Begin an empty journal in place of whatever is there."""
        self.close()
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        _write_all(self._fd, self._header.line())

    def resume(self, pieces: dict[int, bytes]) -> None:
        """Begin with these pieces, so that torn lines and old words do not pile up."""
        self.start()
        lines = b"".join(_line(piece, digest) for piece, digest in sorted(pieces.items()))
        _write_all(self._fd, lines)

    def append(self, piece: int, digest: bytes) -> None:
        """Write down one finished piece, whose bytes are already in the file."""
        _write_all(self._fd, _line(piece, digest))

    def discard(self) -> None:
        """Close and remove the file."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; what was appended stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _line(piece: int, digest: bytes) -> bytes:
    return b"%d %s\n" % (piece, digest.hex().encode())


def _parse(line: bytes, pieces: int) -> tuple[int, bytes] | None:
    index, _, text = line.partition(b" ")
    if not index.isdigit() or len(text) != _HEX_LENGTH or int(index) >= pieces:
        return None
    try:
        return int(index), bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
