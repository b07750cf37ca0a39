"""Whether the answer to a ranged request holds the bytes that were asked for: pure."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.selection import changed_meanwhile

_RANGE: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")
_SOON: Final = 15.0


def range_header(start: int, end: int) -> str:
    """The value of Range for bytes [start, end)."""
    return f"bytes={start}-{end - 1}"


def check_part(
    file: SourceFile, span: tuple[int, int], status: int, content_range: str, body: bytes
) -> bytes:
    """The body, if it is bytes [start, end) of the file as it was listed.

    Raises:
        SourceError: the server knows no ranges, the file has changed, or the body is short.
    """
    start, end = span
    if status == HTTPStatus.OK:
        raise SourceError(
            Reason.SOURCE_INVALID,
            f"the server sends all of {quote(file.path)} where a part is asked for, and spec.load "
            "needs parts: use a server that knows ranges, or leave spec.load out of a new "
            "ModelVersion",
        )
    found = _RANGE.fullmatch(content_range)
    if status != HTTPStatus.PARTIAL_CONTENT or found is None:
        raise changed_meanwhile(file.path)
    if (int(found[1]), int(found[2])) != (start, end - 1):
        raise changed_meanwhile(file.path)
    if found[3] not in ("*", str(file.size_bytes)):
        raise changed_meanwhile(file.path)
    if len(body) != end - start:
        raise SourceError(
            Reason.SOURCE_ERROR,
            f"{quote(file.path)}: {end - start} bytes were asked for, {len(body)} came",
            retry_after_seconds=_SOON,
        )
    return body
