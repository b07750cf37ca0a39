"""What a response to a ranged request means. Pure: (asked, response) -> body to read or Refusal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from modelcache_agent.decide.content_check import describe_foreign_content
from modelcache_agent.decide.transfer_plan import MAX_RETRY_AFTER_SECONDS
from modelcache_agent.fetch.refusal import Cure, Refusal, show
from modelcache_agent.fetch.s3_error import (
    GONE_CODES,
    SKEW_CODES,
    THROTTLE_CODES,
    S3Error,
    parse_s3_error,
)
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_api.retry_after import parse_retry_after
from modelcache_api.weights_names import is_weights_name

_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


@dataclass(frozen=True, slots=True)
class Ask:
    """The range that was asked for: bytes [start, end) of a file of `size_bytes`."""

    path: str
    size_bytes: int
    etag: str | None
    start: int
    end: int
    last_modified: str | None = None
    """What guards a file without ETag: the date in the header when the source was resolved."""


@dataclass(frozen=True, slots=True)
class Head:
    """The parts of a response's head that matter. `received_at` is our clock, Unix seconds."""

    status: int
    etag: str | None = None
    content_range: str | None = None
    content_length: int | None = None
    retry_after: str | None = None
    date: str | None = None
    last_modified: str | None = None
    content_encoding: str | None = None
    received_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes [start, end) of the file follow. `end` may be short of what was asked for."""

    start: int
    end: int


def opaque_etag(etag: str | None) -> str | None:
    """The token inside an ETag, without weakness mark and quotes; None if there is none."""
    if etag is None:
        return None
    return etag.strip().removeprefix("W/").strip('"') or None


def if_match_value(etag: str | None) -> str | None:
    """The If-Match header for this ETag; None for weak ones, which If-Match can never match."""
    token = opaque_etag(etag)
    if token is None or etag is None or etag.strip().startswith("W/"):
        return None
    return f'"{token}"'


def judge_success(  # noqa: PLR0911 - a ladder of early returns
    ask: Ask, head: Head
) -> Body | Refusal:
    """A 200 or 206: which bytes of the file its body holds."""
    if _is_compressed(ask, head):
        return _compressed(ask, head)
    theirs, ours = opaque_etag(head.etag), opaque_etag(ask.etag)
    if theirs is not None and ours is not None and theirs != ours:
        return _changed(ask, f"it carries the ETag {show(theirs, 80)}, not {show(ours, 80)}")
    if ours is None and ask.last_modified not in (None, head.last_modified):
        # Servers that know no If-Unmodified-Since serve the other file.
        stated, wanted = head.last_modified or "missing", ask.last_modified or ""
        return _changed(ask, f"its Last-Modified is {show(stated, 40)}, not {show(wanted, 40)}")
    if head.status == HTTPStatus.OK:
        if head.content_length is not None and head.content_length != ask.size_bytes:
            return _changed(ask, f"it has {head.content_length} bytes, not {ask.size_bytes}")
        return Body(0, ask.size_bytes)
    found = _CONTENT_RANGE.fullmatch(head.content_range or "")
    if found is None:
        return _changed(ask, f"its Content-Range is {show(head.content_range or 'missing', 80)}")
    start, last, total = int(found[1]), int(found[2]), found[3]
    if total not in ("*", str(ask.size_bytes)):
        return _changed(ask, f"it has {total} bytes, not {ask.size_bytes}")
    if start != ask.start or not start <= last < ask.end:
        return _changed(ask, f"bytes {ask.start}-{ask.end - 1} were asked for, {start}-{last} came")
    length = last + 1 - start
    if head.content_length is not None and head.content_length > length:
        return Refusal(
            Reason.TRANSFER_FAILED,
            f"{quote(ask.path)}: expected {length} bytes of a range,"
            f" the answer announces {head.content_length}",
        )
    return Body(start, last + 1)


def _is_compressed(ask: Ask, head: Head) -> bool:
    """True if the answer is packed. Where it has the file's size, the file itself is stored so."""
    if (head.content_encoding or "").strip().lower() not in _PACKED:
        return False
    if head.status == HTTPStatus.OK:
        return head.content_length != ask.size_bytes
    found = _CONTENT_RANGE.fullmatch(head.content_range or "")
    return found is not None and found[3] not in ("*", str(ask.size_bytes))


def _compressed(ask: Ask, head: Head) -> Refusal:
    coding = show(head.content_encoding or "", 40)
    return Refusal(
        Reason.SOURCE_ERROR,
        f"{quote(ask.path)}: the server compresses it ({coding}) although that was not asked for:"
        " switch that off for this file",
        Cure.NONE,
    )


def judge_foreign_body(ask: Ask, refusal: Refusal, beginning: bytes) -> Refusal:
    """A success that is not the file: names the page or error document that came instead."""
    kind = describe_foreign_content(beginning)
    if kind is None or not is_weights_name(ask.path):
        return refusal
    return Refusal(Reason.NOT_A_MODEL, f"{quote(ask.path)}: the answer is {kind}", Cure.NONE)


def judge_failure(  # noqa: PLR0911 - a ladder of early returns
    ask: Ask, head: Head, body: bytes
) -> Refusal:
    """Any status but 200 and 206 (redirects were followed already)."""
    error = parse_s3_error(body)
    said = f"HTTP {head.status}" + (f" {error.code}" if error.code else "")
    if error.code in SKEW_CODES:
        return _skewed(ask, head, error)
    if error.is_expired:
        return Refusal(
            Reason.CREDENTIALS_EXPIRED,
            f"{quote(ask.path)}: the signed URL or its credentials ran out ({said})",
            Cure.REFRESH,
        )
    if head.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE) or error.code in GONE_CODES:
        return Refusal(
            Reason.SOURCE_GONE,
            f"{quote(ask.path)}: the source no longer has it ({said})",
            Cure.NONE,
        )
    if head.status == HTTPStatus.PRECONDITION_FAILED:
        return _changed(ask, f"its identity is no longer {show(_identity(ask), 80)}")
    if head.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return _changed(ask, f"it has no bytes {ask.start}-{ask.end - 1} of {ask.size_bytes}")
    if head.status in _BUSY or error.code in THROTTLE_CODES:
        pause = _asked_pause(head)
        asked = "" if pause is None else f", it asks for a pause of {pause:.0f} s"
        return Refusal(
            Reason.THROTTLED,
            f"{quote(ask.path)}: the store is busy ({said}){asked}",
            least_pause_seconds=pause or 0.0,
            whole_job=True,
        )
    if head.status in _DENIED:
        return Refusal(
            Reason.AUTH_FAILED, f"{quote(ask.path)}: access was refused ({said})", Cure.REFRESH
        )
    return _unexpected(ask, head, error, said)


_PACKED: Final = frozenset({"gzip", "x-gzip", "deflate", "compress", "br", "zstd"})
_BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def _asked_pause(head: Head) -> float | None:
    return parse_retry_after(head.retry_after, head.received_at, longest=MAX_RETRY_AFTER_SECONDS)


def _identity(ask: Ask) -> str:
    return ask.etag or ask.last_modified or "the same"


def _unexpected(ask: Ask, head: Head, error: S3Error, said: str) -> Refusal:
    transient = (
        head.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        or head.status == HTTPStatus.REQUEST_TIMEOUT
        or error.code in ("RequestTimeout", "InternalError")
    )
    return Refusal(
        Reason.SOURCE_ERROR,
        f"{quote(ask.path)}: the store answered {said}",
        Cure.RETRY if transient else Cure.NONE,
        least_pause_seconds=_asked_pause(head) or 0.0,
    )


def _changed(ask: Ask, what: str) -> Refusal:
    return Refusal(
        Reason.SOURCE_CHANGED, f"{quote(ask.path)}: the source has changed: {what}", Cure.NONE
    )


def _skewed(ask: Ask, head: Head, error: S3Error) -> Refusal:
    ours = datetime.fromtimestamp(head.received_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    theirs = error.server_time or head.date or "not stated"
    return Refusal(
        Reason.CLOCK_SKEW,
        f"{quote(ask.path)}: the store says the request's time is too far from its own;"
        f" its clock: {show(theirs, 40)}, this node's clock: {ours}",
    )
