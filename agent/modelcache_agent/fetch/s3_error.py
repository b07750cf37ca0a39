"""What an S3 error body says, read by bounded patterns: no XML parser, no entities. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_ERROR_BODY_BYTES: Final = 16 * 1024
_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_SERVER_TIME: Final = re.compile(rb"<ServerTime>([0-9TZ:.+-]{1,40})</ServerTime>")
_MESSAGE_EXPIRED: Final = re.compile(rb"<Message>[^<]{0,200}\bexpired\b", re.IGNORECASE)

EXPIRED_CODES: Final = frozenset(
    {
        "ExpiredPresignRequest",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "TokenRefreshRequired",
    }
)
SKEW_CODES: Final = frozenset({"RequestTimeTooSkewed", "RequestInTheFuture"})
THROTTLE_CODES: Final = frozenset(
    {"SlowDown", "SlowDownRead", "ServiceUnavailable", "TooManyRequests", "RequestLimitExceeded"}
)
GONE_CODES: Final = frozenset({"NoSuchBucket", "NoSuchKey", "NoSuchVersion", "BucketNotFound"})


@dataclass(frozen=True, slots=True)
class S3Error:
    """The parts of an error body that decisions use; everything else is never looked at."""

    code: str | None = None
    server_time: str | None = None
    is_expired: bool = False


def parse_s3_error(body: bytes) -> S3Error:
    """Read at most MAX_ERROR_BODY_BYTES of an error body. Never fails."""
    head = body[:MAX_ERROR_BODY_BYTES]
    code = _CODE.search(head)
    if code is None:
        return S3Error()
    name = code.group(1).decode("ascii")
    time = _SERVER_TIME.search(head)
    expired = name in EXPIRED_CODES or (
        name == "AccessDenied" and _MESSAGE_EXPIRED.search(head) is not None
    )
    return S3Error(name, time.group(1).decode("ascii") if time else None, expired)
