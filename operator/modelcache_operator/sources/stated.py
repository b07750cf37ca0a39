"""What an S3 store states of an object's bytes: pure.

Only a checksum of the whole object is of use. That of an upload in parts may be one of the parts'
checksums, which nobody can compute who does not know where the parts ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from modelcache_api.checksums import ChecksumAlgorithm, decode_base64, decode_checksum
from modelcache_api.manifest import SourceFile
from modelcache_api.v1alpha1.source import Checksums

# One request each: bounds the time of a resolution, and what it costs. Weights come first.
MAX_ASKED: Final = 1_000

_SHA256: Final = "ChecksumSHA256"
_SHA256_BYTES: Final = 32
_FIELDS: Final = {f"Checksum{kind.value.upper()}": kind for kind in ChecksumAlgorithm}
_KNOWN: Final = frozenset({"SHA256", *(kind.value.upper() for kind in ChecksumAlgorithm)})
_WHOLE: Final = "FULL_OBJECT"
# An ETag of an object that was uploaded in parts.
_OF_PARTS: Final = re.compile(r'.*-\d+"?')


def lists_checksum(row: Mapping[str, Any]) -> bool:
    """True if the row of a listing says that there is one, of the whole object, that we know."""
    listed = row.get("ChecksumAlgorithm") or ()
    return not _KNOWN.isdisjoint(listed) and _is_whole(row)


def is_same_object(file: SourceFile, answer: Mapping[str, Any]) -> bool:
    """False if a HEAD is about other bytes than those that were listed."""
    theirs = _token(str(answer.get("ETag") or ""))
    return not theirs or file.etag is None or theirs == _token(file.etag)


def with_stated(file: SourceFile, answer: Mapping[str, Any]) -> SourceFile:
    """The file with the best checksum of the whole object that a HEAD states, if there is one."""
    if not _is_whole(answer):
        return file
    sha256 = decode_base64(str(answer.get(_SHA256) or ""), _SHA256_BYTES)
    if sha256 is not None:
        return replace(file, sha256=sha256.hex())
    stated = (decode_checksum(kind, str(answer.get(name) or "")) for name, kind in _FIELDS.items())
    checksum = next((value for value in stated if value is not None), None)
    return file if checksum is None else replace(file, checksum=str(checksum))


def choose_asked(
    files: Sequence[SourceFile], listed: frozenset[str], policy: Checksums
) -> tuple[SourceFile, ...]:
    """The files whose checksum is asked for, the largest first. `listed` holds paths."""
    if policy is Checksums.IGNORE:
        return ()
    wanted = (file for file in files if policy is Checksums.ASK or file.path in listed)
    filled = (file for file in wanted if file.size_bytes > 0)
    return tuple(sorted(filled, key=lambda file: -file.size_bytes)[:MAX_ASKED])


def _token(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _is_whole(stated: Mapping[str, Any]) -> bool:
    """Stores that do not say which kind it is have one of the whole object if it has no parts."""
    kind = stated.get("ChecksumType")
    if kind is None:
        return _OF_PARTS.fullmatch(str(stated.get("ETag") or "")) is None
    return bool(kind == _WHOLE)
