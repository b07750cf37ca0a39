"""From what botocore raises to one reason and one sentence: pure.

Text of the store never enters a message unquoted; URLs, keys of accounts and bodies never at all.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ParamValidationError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.addressing import Address
from modelcache_operator.sources.causes import describe_tls, find_cause
from modelcache_operator.sources.egress import RefusedAddressError
from modelcache_operator.sources.store_answer import StoreAnswer, read_retry_after

_SOON: Final = 15.0
_LATER: Final = 60.0

_AUTH: Final = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "AccountProblem",
        "InvalidAccessKeyId",
        "InvalidSecurity",
        "InvalidToken",
        "NotSignedUp",
        "SignatureDoesNotMatch",
        "UnauthorizedAccess",
        "Unauthorized",
        "Forbidden",
        "401",
        "403",
    }
)
EXPIRED: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
    }
)
CLOCK_SKEW: Final = "RequestTimeTooSkewed"
_THROTTLED: Final = frozenset(
    {
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequests",
        "TooManyRequestsException",
        "ServiceUnavailable",
        "BandwidthLimitExceeded",
        "429",
        "503",
    }
)
_ELSEWHERE: Final = frozenset(
    {
        "PermanentRedirect",
        "TemporaryRedirect",
        "Redirect",
        "IllegalLocationConstraintException",
        "301",
        "302",
        "307",
        "308",
    }
)
# What stores say that take the bucket only in the host name.
_WANTS_VIRTUAL: Final = re.compile(
    r"virtual[ -]?host|path[ -]?style|second level domain|SecondLevelDomain", re.IGNORECASE
)

S3Failure = BotoCoreError | ClientError | ResponseParserError
S3_ERRORS: Final = (BotoCoreError, ClientError, ResponseParserError)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was asked of whom, for the message."""

    address: Address
    is_anonymous: bool
    now: datetime


def explain(error: S3Failure, attempt: Attempt) -> SourceError:
    """The reason for a failed call, with cause, cure and when to try again."""
    refused = find_cause(error, RefusedAddressError)
    if refused is not None:
        return SourceError(
            Reason.SOURCE_NOT_ALLOWED, f"{attempt.address.request_host}: {refused.message}"
        )
    if isinstance(error, ClientError):
        return _explain_answer(error, attempt)
    if isinstance(error, ParamValidationError):
        return SourceError(
            Reason.SOURCE_INVALID,
            f"{quote(attempt.address.bucket)} is no bucket name: correct source.uri",
        )
    if isinstance(error, ResponseParserError):
        return _not_s3(attempt)
    return _explain_connection(error, attempt)


def _explain_connection(error: Exception, attempt: Attempt) -> SourceError:
    where = attempt.address.authority
    if isinstance(error, SSLError) or find_cause(error, ssl.SSLError) is not None:
        return SourceError(
            Reason.TLS_FAILED,
            f"no trusted TLS connection to {where}: {describe_tls(error)}; give the CA's "
            "certificate with source.caBundleRef, or correct source.endpoint",
            retry_after_seconds=_LATER,
        )
    if isinstance(error, ConnectTimeoutError | ReadTimeoutError):
        what = "does not answer in time"
    elif find_cause(error, ConnectionRefusedError) is not None:
        what = "refuses connections"
    elif isinstance(error, EndpointConnectionError):
        what = "cannot be reached"
    elif isinstance(error, HTTPClientError):
        what = "breaks the connection off"
    else:
        return SourceError(
            Reason.SOURCE_ERROR, f"{where}: {type(error).__name__}", retry_after_seconds=_LATER
        )
    return SourceError(
        Reason.ENDPOINT_UNREACHABLE,
        f"{where} {what}: check source.endpoint, and network policies of the operator",
        retry_after_seconds=_SOON,
    )


def _explain_answer(error: ClientError, attempt: Attempt) -> SourceError:
    answer = StoreAnswer.of(error.response)
    if answer.code == CLOCK_SKEW:
        return _clock_skew(answer, attempt)
    if answer.code in EXPIRED:
        return SourceError(
            Reason.CREDENTIALS_EXPIRED,
            "the store says that the session token has expired: write new credentials into the "
            "Secret; they are read again by themselves",
            retry_after_seconds=_LATER,
        )
    if answer.code in _THROTTLED or answer.status in (429, 503):
        return SourceError(
            Reason.THROTTLED,
            f"{attempt.address.authority} asks for fewer requests ({answer.shown})",
            retry_after_seconds=read_retry_after(answer.headers, attempt.now, default=_SOON),
        )
    return (
        _explain_place(answer, attempt)
        or _explain_identity(answer, attempt)
        or _explain_rest(answer, attempt)
    )


def _explain_place(answer: StoreAnswer, attempt: Attempt) -> SourceError | None:
    """The request went to a wrong place: bucket, region or addressing style."""
    address = attempt.address
    if answer.code == "NoSuchBucket":
        return SourceError(
            Reason.SOURCE_NOT_FOUND,
            f"there is no bucket {quote(address.bucket)} at {address.authority}",
        )
    if answer.region is not None and answer.region != address.region:
        return SourceError(
            Reason.SOURCE_INVALID,
            f"the bucket is in region {answer.region}, not {address.region}: set source.region",
        )
    if address.style == "path" and _WANTS_VIRTUAL.search(f"{answer.code} {answer.message}"):
        return SourceError(
            Reason.WRONG_ADDRESSING,
            f"{address.authority} does not take the bucket in the path ({answer.shown}): "
            "set source.addressing to Virtual",
        )
    if answer.code in _ELSEWHERE:
        other = "Virtual" if address.style == "path" else "Path"
        return SourceError(
            Reason.WRONG_ADDRESSING,
            f"{address.authority} sends requests elsewhere ({answer.shown}): set source.endpoint "
            f"and source.region to those of the bucket, or source.addressing to {other}",
        )
    return None


def _explain_identity(answer: StoreAnswer, attempt: Attempt) -> SourceError | None:
    if answer.code not in _AUTH and answer.status not in (401, 403):
        return None
    cure = (
        "the request was anonymous: name a Secret in source.credentialsSecretRef"
        if attempt.is_anonymous
        else "check the keys in the Secret, and that they may list the bucket and read its objects"
    )
    return SourceError(
        Reason.AUTH_FAILED,
        f"{attempt.address.authority} refuses access to bucket "
        f"{quote(attempt.address.bucket)} ({answer.shown}): {cure}",
    )


def _explain_rest(answer: StoreAnswer, attempt: Attempt) -> SourceError:
    if answer.status >= 500:  # noqa: PLR2004 - HTTP
        return SourceError(
            Reason.SOURCE_ERROR,
            # botocore reports an answer that is not XML as a 500, too.
            f"{attempt.address.authority} failed with {answer.shown}, or is no S3 store; "
            "it is tried again",
            retry_after_seconds=read_retry_after(answer.headers, attempt.now, default=_SOON),
        )
    return SourceError(
        Reason.SOURCE_ERROR,
        f"{attempt.address.authority} answered {answer.shown}: "
        "check that source.endpoint is an S3 store",
        retry_after_seconds=_LATER,
    )


def _clock_skew(answer: StoreAnswer, attempt: Attempt) -> SourceError:
    theirs = answer.server_time or "unknown"
    ours = answer.request_time or attempt.now.astimezone(UTC).isoformat()
    return SourceError(
        Reason.CLOCK_SKEW,
        f"the clocks of the operator ({ours}) and of {attempt.address.authority} ({theirs}) "
        "differ by too much: set the wrong one right",
        retry_after_seconds=_LATER,
    )


def _not_s3(attempt: Attempt) -> SourceError:
    return SourceError(
        Reason.SOURCE_ERROR,
        f"the answer of {attempt.address.authority} is not that of an S3 store: "
        "check source.endpoint",
        retry_after_seconds=_LATER,
    )
