"""Asks a web server what it knows of its files, without reading them: blocking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

from modelcache_api.manifest import SourceFile
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.connections import Answer
from modelcache_operator.sources.partial.answer import check_part, range_header
from modelcache_operator.sources.selection import changed_meanwhile
from modelcache_operator.sources.web.conversation import WebConversation
from modelcache_operator.sources.web.errors import Asked, explain_status
from modelcache_operator.sources.web.head import FileHead, read_head, read_size, refuse_nameless
from modelcache_operator.sources.web.indexes import MAX_INDEX_BYTES
from modelcache_operator.sources.web.selection import Wanted

_ONE_BYTE: Final[Mapping[str, str]] = {"Range": "bytes=0-0"}
# Servers that know no HEAD, or have signed for GET alone.
_NO_HEAD: Final = (
    HTTPStatus.FORBIDDEN,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_IMPLEMENTED,
)
_EMPTY: Final = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
_LATER: Final = 60.0


@dataclass(frozen=True, slots=True)
class Prober:
    """Questions about one version's files. `clock` gives the present time."""

    conversation: WebConversation
    clock: Callable[[], datetime]

    def read_index(self, path: str) -> bytes:
        """The whole of a file that says which files there are.

        Raises:
            SourceError: it is not there, a page, compressed or too long.
        """
        answer = self.conversation.ask("GET", self._url(path), max_bytes=MAX_INDEX_BYTES)
        if answer.status != HTTPStatus.OK:
            raise self._explain(answer, path)
        read_head(path, len(answer.body), _without_date(answer.headers), self.clock())
        if not answer.is_whole:
            raise SourceError(
                Reason.SOURCE_INVALID,
                f"{quote(path)} is longer than {MAX_INDEX_BYTES} bytes: name the files in "
                "spec.files of a new ModelVersion",
            )
        return answer.body

    def find(self, wanted: Wanted) -> SourceFile:
        """The file as the server states it now.

        Raises:
            SourceError: it is not there, or cannot be told from a changed one.
        """
        head = self._head(wanted.path)
        version_id = None
        if not head.has_identity:
            if wanted.sha256 is None:
                raise refuse_nameless(wanted.path)
            # Each node checks it; a changed one costs a download in vain, and is found.
            version_id = f"sha256:{wanted.sha256}"
        return SourceFile(
            wanted.path,
            head.size_bytes,
            head.etag,
            version_id,
            sha256=wanted.sha256,
            last_modified=head.last_modified,
        )

    def try_one(self, file: SourceFile) -> None:
        """Find out now whether nodes can read the file, and would see that it was changed.

        Raises:
            SourceError: GET is refused, or states another identity than HEAD.
        """
        if file.size_bytes == 0:  # there is no byte to ask for
            return
        head = self._by_range(file.path)
        found = (head.size_bytes, head.etag, head.last_modified)
        if found != (file.size_bytes, file.etag, file.last_modified):
            raise SourceError(
                Reason.SOURCE_INVALID,
                f"GET and HEAD state another size, ETag or Last-Modified of {quote(file.path)}:"
                " behind the name may be servers that differ, or something in between changes "
                "answers; let all of them answer alike",
                retry_after_seconds=_LATER,
            )

    def read_part(self, file: SourceFile, span: tuple[int, int]) -> bytes:
        """Bytes [start, end) of a file that was found.

        Raises:
            SourceError: it has changed, or the server serves no parts.
        """
        guard = {"Range": range_header(*span)}
        if file.etag is not None:
            guard["If-Match"] = file.etag
        elif file.last_modified is not None:
            guard["If-Unmodified-Since"] = file.last_modified
        answer = self.conversation.ask(
            "GET", self._url(file.path), guard, max_bytes=span[1] - span[0]
        )
        if answer.status == HTTPStatus.PRECONDITION_FAILED:
            raise changed_meanwhile(file.path)
        if answer.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise self._explain(answer, file.path)
        if file.last_modified not in (None, answer.headers.get("last-modified")):
            raise changed_meanwhile(file.path)
        content_range = answer.headers.get("content-range", "")
        return check_part(file, span, answer.status, content_range, answer.body)

    def _head(self, path: str) -> FileHead:
        answer = self.conversation.ask("HEAD", self._url(path))
        size = read_size(answer.status, answer.headers)
        if answer.status in _NO_HEAD or (answer.status == HTTPStatus.OK and size is None):
            return self._by_range(path)
        if answer.status != HTTPStatus.OK or size is None:
            raise self._explain(answer, path)
        return read_head(path, size, answer.headers, self.clock())

    def _by_range(self, path: str) -> FileHead:
        """By a GET of one byte. Where ranges are ignored, only a beginning of the body is read."""
        answer = self.conversation.ask("GET", self._url(path), _ONE_BYTE)
        size = read_size(answer.status, answer.headers)
        if answer.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT) and (
            (answer.status, size) != (_EMPTY, 0)
        ):
            raise self._explain(answer, path)
        if size is None:
            raise SourceError(
                Reason.SOURCE_INVALID,
                f"the server does not say how long {quote(path)} is: let it send a Content-Length",
            )
        return read_head(path, size, answer.headers, self.clock())

    def _url(self, path: str) -> str:
        return self.conversation.target.location.url_of(path)

    def _explain(self, answer: Answer, path: str) -> SourceError:
        where = self.conversation.target.location.origin.authority
        return explain_status(answer, Asked(where, path, self.clock()))


def _without_date(headers: Mapping[str, str]) -> Mapping[str, str]:
    """An index is read at once: that it was written this second does not matter."""
    return {name: value for name, value in headers.items() if name != "last-modified"}
