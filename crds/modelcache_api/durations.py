"""Durations of the API, from text."""

from __future__ import annotations

import re
from typing import Final

_PATTERN: Final = re.compile(r"([0-9]{1,6})([smh])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> int:
    """Seconds of a duration such as `30s`, `90m` or `24h`.

    Raises:
        ValueError: it is none.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        message = f"{text!r} is not a duration: write a whole number of s, m or h, e.g. 24h"
        raise ValueError(message)
    number, unit = match.groups()
    return int(number) * _SECONDS[unit]
