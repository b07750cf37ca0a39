"""The pause that a server asks for, from one header. Pure; no text of a server breaks it."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

# An HTTP date has 29 characters, and no number of seconds that is meant has as many.
_LONGEST_VALUE: Final = 64


def parse_retry_after(value: str | None, now: float, *, longest: float) -> float | None:
    """Seconds that a Retry-After asks for (seconds or an HTTP date), 0 to `longest`.

    None if it is not there or makes no sense. `now` is the wall clock in Unix seconds.
    """
    if value is None or len(value) > _LONGEST_VALUE:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), longest)
    moment = _parse_http_date(text)
    return None if moment is None else min(max(0.0, moment - now), longest)


def _parse_http_date(value: str) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
        # "-0000" leaves the zone open; HTTP knows no other than this one.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None
