"""One thing that went wrong with a file, and what may be done about it. Pure.

RefusalError    carried from wherever it was noticed to the stream that decides
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from modelcache_api.limits import MAX_MESSAGE_LENGTH
from modelcache_api.names import Reason
from modelcache_api.quoted import quote


class Cure(Enum):
    """What may help."""

    RETRY = auto()
    """The same request, after a pause, within the budget."""

    REFRESH = auto()
    """A new grant at once; if that was tried, the job fails with the reason."""

    NONE = auto()
    """The job fails."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason, a sentence without secrets, and the cure."""

    reason: Reason
    message: str
    cure: Cure = Cure.RETRY
    least_pause_seconds: float = 0.0
    whole_job: bool = False
    """True if every file of the job waits, not this one alone (the store asked for it)."""


class RefusalError(Exception):
    """Carries a Refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


_HARMLESS: Final = re.compile(r"""[0-9A-Za-z ._+=*/,:;'"-]*""")

# When to submit the job again after it failed, by reason; None: only a change can help.
_RETRY_AFTER_SECONDS: Final[dict[Reason, float | None]] = {
    Reason.AUTH_FAILED: 300.0,
    Reason.CLOCK_SKEW: 120.0,
    Reason.CREDENTIALS_EXPIRED: 60.0,
    Reason.DIGEST_MISMATCH: 600.0,
    Reason.ENDPOINT_UNREACHABLE: 30.0,
    Reason.INSUFFICIENT_SPACE: 60.0,
    Reason.NOT_A_MODEL: None,
    Reason.NOT_KNOWN_YET: 1.0,
    Reason.SOURCE_CHANGED: None,
    Reason.SOURCE_ERROR: 60.0,
    Reason.SOURCE_GONE: None,
    Reason.SOURCE_NOT_ALLOWED: None,
    Reason.STORE_ERROR: 60.0,
    Reason.THROTTLED: 30.0,
    Reason.TLS_FAILED: 300.0,
    Reason.TRANSFER_FAILED: 30.0,
    Reason.TRANSFER_STALLED: 30.0,
}


def retry_after_seconds(refusal: Refusal) -> float | None:
    """When a job that failed so may be submitted again."""
    seconds = _RETRY_AFTER_SECONDS.get(refusal.reason, 60.0)
    return None if seconds is None else max(seconds, refusal.least_pause_seconds)


def show(value: str, limit: int) -> str:
    """A header's value for a message, unless it may be an address or the request itself.

    A store could send a signed URL back to have it shown to everybody who may read a status.
    """
    if "//" in value or _HARMLESS.fullmatch(value) is None:
        return "(not shown)"
    return quote(value, limit)


def bound(message: str) -> str:
    """The message within the limit of a status message."""
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    return f"{message[: MAX_MESSAGE_LENGTH - 3]}..."
