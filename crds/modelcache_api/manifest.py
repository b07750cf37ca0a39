"""Manifests: what the source was when resolved, and what the bytes are.

A *source* manifest lists (path, size, identity); its digest is `sourceDigest`. A *content* manifest
lists (path, size, sha256, blake3 of each piece); the digest over its sha256 lines is
`contentDigest`, the identity of a content anywhere.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, Final, NewType

from modelcache_api.cut import Cut, describe_cut_fault

ContentDigest = NewType("ContentDigest", str)
SourceDigest = NewType("SourceDigest", str)

# Unit of resumption and of early verification.
PIECE_BYTES: Final = 8 * 1024 * 1024
_DIGEST_PREFIX: Final = "sha256:"
# What the rows of a packed manifest hold; the second form where the source states a sha256 (hex),
# or another checksum (which has a colon); the third where a date is all that tells changes apart.
_SOURCE_ROW: Final = (str, int, str | None, str | None, str | None)
_STATED_ROW: Final = (*_SOURCE_ROW, str)
_DATED_ROW: Final = (*_SOURCE_ROW, str | None, str)
_CUT_ROW: Final = (int, str, list, str | None)
_CONTENT_ROW: Final = (str, int, str, list)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as the source lists it. `etag` is an opaque change token, never a checksum.

    `key` is the object's key where it is not the prefix and the path: `s3://b/exp/model.pkl` may
    name one object or a folder, and only the listing knows. `sha256` is the checksum that the
    source states, and a promise about the bytes; `checksum` is another one (see checksums.py), for
    want of a sha256, never beside it. None of the three is part of the identity. `last_modified` is
    the date of an HTTP header as it was sent, where a web server has no ETag. With a `cut` only a
    part of the source's file is taken: size and checksums are of that part, the rest is as it was.
    """

    path: str
    size_bytes: int
    etag: str | None = None
    version_id: str | None = None
    key: str | None = None
    sha256: str | None = None
    checksum: str | None = None
    last_modified: str | None = None
    cut: Cut | None = None

    @property
    def whole(self) -> SourceFile:
        """The file as the source has it."""
        if self.cut is None:
            return self
        size, sha256 = self.cut.whole_bytes, self.cut.whole_sha256
        return replace(self, size_bytes=size, sha256=sha256, cut=None)

    @property
    def identity(self) -> str:
        """The token that changes when the object changes, or what is taken of it."""
        if self.cut is not None:
            return f"cut:{self.cut.digest}:{self.whole.identity}"
        if self.version_id is not None:
            return f"version:{self.version_id}"
        if self.etag is None and self.last_modified is not None:
            return f"modified:{self.last_modified}"
        return f"etag:{self.etag}"


@dataclass(frozen=True, slots=True)
class ContentFile:
    """One file as its bytes are. `pieces` holds the blake3 (hex) of each PIECE_BYTES."""

    path: str
    size_bytes: int
    sha256: str
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceManifest:
    """The selected files of a source, sorted by the UTF-8 bytes of their paths.

    `revision` is the source's own unchanging name of what was listed, a hub's commit; None where
    there is none. It is no part of the digest: equal files are equal at any commit. Nor are the
    files that are `left_out`, because nothing of them is wanted: they are part of what was listed.
    """

    files: tuple[SourceFile, ...]
    revision: str | None = None
    left_out: tuple[SourceFile, ...] = ()

    @property
    def listed(self) -> SourceManifest:
        """All files as the source had them."""
        whole = (*(file.whole for file in self.files), *self.left_out)
        return make_source_manifest(whole, self.revision)

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(file.size_bytes for file in self.files)

    @property
    def digest(self) -> SourceDigest:
        """Digest over the lines `<size> <identity> <path>`."""
        lines = (
            f"{file.size_bytes} {json.dumps(file.identity)} {file.path}\n" for file in self.files
        )
        return SourceDigest(digest_of_lines(lines))


@dataclass(frozen=True, slots=True)
class ContentManifest:
    """The files of a content, sorted by the UTF-8 bytes of their paths."""

    files: tuple[ContentFile, ...]

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(file.size_bytes for file in self.files)

    @property
    def digest(self) -> ContentDigest:
        """Digest over the lines `<sha256> <size> <path>`."""
        lines = (f"{file.sha256} {file.size_bytes} {file.path}\n" for file in self.files)
        return ContentDigest(digest_of_lines(lines))


def make_source_manifest(
    files: Iterable[SourceFile],
    revision: str | None = None,
    left_out: Iterable[SourceFile] = (),
) -> SourceManifest:
    """A source manifest in canonical order."""
    return SourceManifest(_sorted(files), revision, _sorted(left_out))


def _sorted(files: Iterable[SourceFile]) -> tuple[SourceFile, ...]:
    return tuple(sorted(files, key=lambda file: file.path.encode()))


def make_content_manifest(files: Iterable[ContentFile]) -> ContentManifest:
    """A content manifest in canonical order."""
    return ContentManifest(tuple(sorted(files, key=lambda file: file.path.encode())))


def digest_of_lines(lines: Iterable[str]) -> str:
    """`sha256:<hex>` of the concatenated lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode())
    return f"{_DIGEST_PREFIX}{digest.hexdigest()}"


def digest_of_bytes(data: bytes) -> str:
    """`sha256:<hex>` of the bytes."""
    return f"{_DIGEST_PREFIX}{hashlib.sha256(data).hexdigest()}"


def digest_hex(digest: str) -> str:
    """The 64 hex characters of a `sha256:` digest; used for folder names.

    Raises:
        ValueError: it is not such a digest.
    """
    value = digest.removeprefix(_DIGEST_PREFIX)
    if len(value) != 64 or set(value) - set("0123456789abcdef"):  # noqa: PLR2004
        message = f"not a sha256 digest: {digest[:80]!r}"
        raise ValueError(message)
    return value


def describe_difference(source: SourceManifest, content: ContentManifest) -> str | None:
    """Why the content cannot be the bytes of the source, or None if all that is known agrees."""
    wanted = {file.path: file.size_bytes for file in source.files}
    found = {file.path: file.size_bytes for file in content.files}
    if len(found) != len(content.files):
        return "the content lists a path twice"
    if missing := sorted(wanted.keys() - found.keys()):
        return f"the content lacks {len(missing)} files of the source, first {missing[0]!r}"
    if extra := sorted(found.keys() - wanted.keys()):
        return f"the content has {len(extra)} files that the source lacks, first {extra[0]!r}"
    for path, size in wanted.items():
        if found[path] != size:
            return f"{path!r} has {found[path]} bytes, the source says {size}"
    digests = {file.path: file.sha256 for file in content.files}
    for file in source.files:
        if file.sha256 is not None and digests[file.path] != file.sha256:
            return f"{file.path!r} has sha256 {digests[file.path]}, the source says {file.sha256}"
    return None


def pack_source(manifest: SourceManifest) -> bytes:
    """Compressed and deterministic; read back by `unpack_source`."""
    rows = [_source_row(file) for file in manifest.files]
    cuts = {str(n): _cut_row(f.cut) for n, f in enumerate(manifest.files) if f.cut is not None}
    document: dict[str, Any] = {}
    if manifest.revision is not None:
        document["revision"] = manifest.revision
    if cuts:
        document["cuts"] = cuts
    if manifest.left_out:
        document["leftOut"] = [_source_row(file) for file in manifest.left_out]
    return _pack({**document, "files": rows} if document else rows)


def _source_row(file: SourceFile) -> list[Any]:
    row = [file.path, file.size_bytes, file.etag, file.version_id, file.key]
    stated = file.sha256 or file.checksum
    if file.last_modified is not None:
        return [*row, stated, file.last_modified]
    return row if stated is None else [*row, stated]


def _read_source_row(row: list[Any]) -> SourceFile:
    known, dates = row[: len(_STATED_ROW)], row[len(_STATED_ROW) :]
    file = replace(SourceFile(*known), last_modified=dates[0] if dates else None)
    if file.sha256 is not None and ":" in file.sha256:
        return replace(file, sha256=None, checksum=file.sha256)
    return file


def _read_source_rows(rows: object) -> tuple[SourceFile, ...]:
    checked = _check_rows(rows, _SOURCE_ROW, _STATED_ROW, _DATED_ROW)
    return tuple(_read_source_row(row) for row in checked)


def _cut_row(cut: Cut) -> list[Any]:
    literal = base64.b64encode(cut.literal).decode()
    flat = [offset for span in cut.ranges for offset in span]
    return [cut.whole_bytes, literal, flat, cut.whole_sha256]


def _read_cut(file: SourceFile, row: object) -> SourceFile:
    size, literal, flat, sha256 = _check_rows([row], _CUT_ROW)[0]
    if len(flat) % 2 or not all(type(offset) is int for offset in flat):
        raise _other_shape()
    try:
        literal = base64.b64decode(literal, validate=True)
    except binascii.Error:
        raise _other_shape() from None
    cut = Cut(size, literal, tuple(zip(flat[::2], flat[1::2], strict=True)), sha256)
    if describe_cut_fault(cut, file.size_bytes) is not None:
        raise _other_shape()
    return replace(file, cut=cut)


def unpack_source(data: bytes) -> SourceManifest:
    """The manifest that `pack_source` packed. Raises ValueError on anything else."""
    document = _unpack(data)
    if not isinstance(document, dict):
        return SourceManifest(_read_source_rows(document))
    revision, cuts = document.get("revision"), document.get("cuts", {})
    if not isinstance(revision, str | None) or not isinstance(cuts, dict):
        raise _other_shape()
    files = list(_read_source_rows(document.get("files")))
    for number, row in cuts.items():
        if not number.isdecimal() or int(number) >= len(files):
            raise _other_shape()
        files[int(number)] = _read_cut(files[int(number)], row)
    left_out = _read_source_rows(document.get("leftOut", []))
    return SourceManifest(tuple(files), revision, left_out)


def pack_content(manifest: ContentManifest) -> bytes:
    """Compressed and deterministic; read back by `unpack_content`."""
    rows = [[f.path, f.size_bytes, f.sha256, list(f.pieces)] for f in manifest.files]
    return _pack(rows)


def unpack_content(data: bytes) -> ContentManifest:
    """The manifest that `pack_content` packed. Raises ValueError on anything else."""
    rows = _check_rows(_unpack(data), _CONTENT_ROW)
    return ContentManifest(
        tuple(ContentFile(path, size, sha, tuple(pieces)) for path, size, sha, pieces in rows)
    )


def _pack(document: object) -> bytes:
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def _unpack(data: bytes) -> Any:
    try:
        return json.loads(gzip.decompress(data))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise ValueError("the stored manifest is damaged") from error


def _check_rows(document: object, *shapes: tuple[type | UnionType, ...]) -> list[list[Any]]:
    if not isinstance(document, list):
        raise _other_shape()
    if not all(any(_is_row(row, types) for types in shapes) for row in document):
        raise _other_shape()
    return document


def _other_shape() -> ValueError:
    return ValueError("the stored manifest has another shape")


def _is_row(row: object, types: tuple[type | UnionType, ...]) -> bool:
    return (
        isinstance(row, list)
        and len(row) == len(types)
        and all(isinstance(value, kind) for value, kind in zip(row, types, strict=True))
    )
