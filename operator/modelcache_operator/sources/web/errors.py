"""From what goes wrong with a web server to one reason and one sentence: pure.

Text of the server never enters a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.connections import NO_ANSWER, Answer, ElsewhereError
from modelcache_operator.sources.egress import RefusedAddressError
from modelcache_operator.sources.no_answer import explain_no_answer
from modelcache_operator.sources.store_answer import read_retry_after

_SOON: Final = 15.0
_LATER: Final = 60.0
_DENIED: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
)
_BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)

WEB_ERRORS: Final = (ElsewhereError, RefusedAddressError, *NO_ANSWER)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of whom, for the message. `path` is that of a file below source.uri."""

    where: str
    path: str
    now: datetime


def explain(error: Exception, where: str) -> SourceError:
    """The reason for one of WEB_ERRORS."""
    if isinstance(error, RefusedAddressError):
        return SourceError(Reason.SOURCE_NOT_ALLOWED, error.message)
    return explain_no_answer(error, where, "source.uri")


def explain_status(answer: Answer, asked: Asked) -> SourceError:
    """The reason for an answer that is an error."""
    where, name, status = asked.where, quote(asked.path), answer.status
    if status in _BUSY:
        return SourceError(
            Reason.THROTTLED,
            f"{where} asks for fewer requests ({status})",
            retry_after_seconds=read_retry_after(answer.headers, asked.now, default=_SOON),
        )
    if status in _DENIED:
        return SourceError(
            Reason.AUTH_FAILED,
            f"{where} refuses access to {name} ({status}): web servers are read without "
            "credentials, by operator and nodes; let them in by address, or put the model into a "
            "bucket (s3://)",
        )
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return SourceError(Reason.SOURCE_NOT_FOUND, f"{where} has no {name} ({status}): {_CURE}")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT:
        return SourceError(
            Reason.SOURCE_ERROR,
            f"{where} failed with {status} for {name}; it is tried again",
            retry_after_seconds=read_retry_after(answer.headers, asked.now, default=_SOON),
        )
    return SourceError(
        Reason.SOURCE_ERROR,
        f"{where} answered {status} for {name}: check source.uri",
        retry_after_seconds=_LATER,
    )


_CURE: Final = (
    "correct source.uri, or the names in spec.files or spec.checksumFile, in a new "
    "ModelVersion; or upload it"
)
