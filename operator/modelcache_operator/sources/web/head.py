"""What the head of a web server's answer says of a file: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError

_STRONG_ETAG: Final = re.compile(r'"[\x21\x23-\x7e]{1,200}"')
# The one form that servers may send since 1999.
_DATE: Final = re.compile(
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    r"\d{4} \d{2}:\d{2}:\d{2} GMT"
)
_RANGE: Final = re.compile(r"bytes (?:\d{1,19}-\d{1,19}|\*)/(\d{1,18})")
_LENGTH: Final = re.compile(r"\d{1,18}")
_PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})
# A date tells changes apart by the second: one that is not over yet may bring another.
_SETTLED_SECONDS: Final = 1.0
_SOON: Final = 5.0


@dataclass(frozen=True, slots=True)
class FileHead:
    """What is known of a file. At most one of `etag` (strong) and `last_modified` is there."""

    size_bytes: int
    etag: str | None
    last_modified: str | None

    @property
    def has_identity(self) -> bool:
        """True if a change during a download would be noticed."""
        return self.etag is not None or self.last_modified is not None


def read_size(status: int, headers: Mapping[str, str]) -> int | None:
    """The size of the whole file, of an answer to a HEAD or to a range; None if not stated."""
    if status != HTTPStatus.OK:
        found = _RANGE.fullmatch(headers.get("content-range", ""))
        return None if found is None else int(found[1])
    length = headers.get("content-length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


def read_head(path: str, size_bytes: int, headers: Mapping[str, str], now: datetime) -> FileHead:
    """Size and identity of a file that is there.

    Raises:
        SourceError: NotAModel for a page; SourceInvalid where it is compressed; SourceChanged where
            it was changed this very moment.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _PAGES and not path.endswith((".html", ".htm", ".xhtml")):
        raise SourceError(
            Reason.NOT_A_MODEL,
            f"the server sends a web page ({kind}) for {quote(path)}: it may want a login, or "
            "not have the file; correct source.uri or the server",
        )
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise SourceError(
            Reason.SOURCE_INVALID,
            f"the server compresses {quote(path)} although that was not asked for, so its size "
            "is not known: switch that off for this file",
        )
    etag = headers.get("etag", "").strip()
    if _STRONG_ETAG.fullmatch(etag):
        return FileHead(size_bytes, etag, None)
    date = headers.get("last-modified", "").strip()
    if not _DATE.fullmatch(date):
        return FileHead(size_bytes, None, None)
    _refuse_unsettled(path, date, headers.get("date", ""), now)
    return FileHead(size_bytes, None, date)


def refuse_nameless(path: str) -> SourceError:
    """The error for a file that cannot be told from a changed one."""
    return SourceError(
        Reason.SOURCE_INVALID,
        f"the server gives {quote(path)} neither a strong ETag nor a Last-Modified, so a "
        "change during a download would go unnoticed: let it send one of them, or put a SHA256SUMS "
        "beside the files and name the folder in source.uri",
    )


def _refuse_unsettled(path: str, modified: str, date: str, now: datetime) -> None:
    try:
        changed = parsedate_to_datetime(modified)
        sent = parsedate_to_datetime(date) if _DATE.fullmatch(date) else now
    except ValueError:  # the 31st of February
        raise refuse_nameless(path) from None
    if (sent - changed).total_seconds() < _SETTLED_SECONDS:
        raise SourceError(
            Reason.SOURCE_CHANGED,
            f"{quote(path)} has no strong ETag, and was modified this very second, as its "
            "server says: it is looked at again; a server that says so always must send an ETag",
            retry_after_seconds=_SOON,
        )
