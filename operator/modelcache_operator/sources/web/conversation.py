"""Requests to a web server and to where it redirects: blocking, each judged and bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urljoin

import httpcore2

from modelcache_api import names
from modelcache_api.names import Reason
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.connections import (
    NO_ANSWER,
    Answer,
    ElsewhereError,
    JudgedConnections,
)
from modelcache_operator.sources.origin import origin_of
from modelcache_operator.sources.web.target import WebTarget

_REDIRECTS: Final = frozenset(
    {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
)
_MAX_REDIRECTS: Final = 5
# A body that ends before is read, so that its connection serves the next question.
_DRAIN_BYTES: Final = 16 * 1024
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
# Compressed, neither size nor ranges of a file are known.
_HEADERS: Final = {
    "User-Agent": names.MANAGER_OPERATOR,
    "Accept": "*/*",
    "Accept-Encoding": "identity",
}
_LATER: Final = 60.0


@dataclass(frozen=True, slots=True)
class WebConversation:
    """Nothing but the request itself is ever sent: no credentials, no cookies."""

    target: WebTarget
    connections: JudgedConnections

    def ask(
        self,
        method: str,
        url: str,
        more: Mapping[str, str] | None = None,
        *,
        max_bytes: int = _DRAIN_BYTES,
    ) -> Answer:
        """The first answer that is no redirect, with so many bytes of its body.

        Raises:
            SourceError: it redirects to where nobody may be sent, or without end.
            RefusedAddressError, ElsewhereError, NO_ANSWER: no answer came.
        """
        self.target.checkpoint()
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._send(method, url, {**_HEADERS, **(more or {})}, max_bytes)
            if answer.status not in _REDIRECTS:
                return answer
            url = self._follow(url, answer.headers.get("location"))
        raise SourceError(
            Reason.SOURCE_ERROR,
            f"{self._where} redirects more than {_MAX_REDIRECTS} times: correct source.uri",
            retry_after_seconds=_LATER,
        )

    def _send(self, method: str, url: str, headers: Mapping[str, str], max_bytes: int) -> Answer:
        own = self.target.location.origin
        origin = origin_of(url) or own
        request = httpcore2.Request(
            method, url, headers=[("Host", origin.host_header), *headers.items()]
        )
        try:
            return self.connections.exchange(request, max_bytes)
        except NO_ANSWER as error:
            if origin == own:
                raise
            raise ElsewhereError(origin.authority) from error

    def _follow(self, url: str, location: str | None) -> str:
        try:
            following = urljoin(url, (location or "").partition("#")[0])
        except ValueError:
            following = ""
        before, after = origin_of(url), origin_of(following)
        if location is None or after is None or not _VISIBLE.fullmatch(following):
            raise SourceError(
                Reason.SOURCE_NOT_ALLOWED,
                f"{self._where} redirects to no http or https address, which is refused",
            )
        if before is not None and (before.scheme, after.scheme) == ("https", "http"):
            raise SourceError(
                Reason.SOURCE_NOT_ALLOWED,
                f"{self._where} redirects from https to http, which is refused",
            )
        return following

    @property
    def _where(self) -> str:
        return self.target.location.origin.authority
