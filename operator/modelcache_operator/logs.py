"""One line per record: time, level, logger, message, fields; control characters are quoted."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from typing import Final

from modelcache_api.log_fields import add_fields

_REPEAT_SECONDS: Final = 60.0
_REMEMBERED_LINES: Final = 256
_DIGITS: Final = re.compile(r"\d+")
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Warns that it leaves signals alone, as it should on a thread of its own.
_MUTED: Final = "kopf._core.reactor.running"
# Chatty about what our own lines say better.
_QUIETER: Final = ("kopf", "botocore", "aiohttp", "kubernetes", "urllib3", "asyncio")


class _NoRepeats(logging.Filter):
    """Lets the same warning through once a minute: outages are told, not counted."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._told: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        # Counts and ports differ from try to try.
        now, key = self._monotonic(), (record.name, _DIGITS.sub("#", record.getMessage()))
        if now - self._told.get(key, float("-inf")) < _REPEAT_SECONDS:
            return False
        self._told.pop(key, None)
        self._told[key] = now
        if len(self._told) > _REMEMBERED_LINES:
            del self._told[next(iter(self._told))]
        return True


class _OneLine(logging.Formatter):
    """Tracebacks of our own bugs keep their lines; those of kopf are about the API server."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name.startswith("kopf"):
            record.exc_info = record.exc_text = None
        text = super().format(record)
        if record.exc_info:
            first, newline, rest = text.partition("\n")
            return f"{add_fields(first)}{newline}{rest}"
        text = add_fields(text)
        return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def set_up_logs(level: str) -> None:
    """Log to standard error. To be called once, by the program."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _OneLine(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(formatter)
    handler.addFilter(_NoRepeats(time.monotonic))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger(_MUTED).setLevel(logging.ERROR)
    for name in _QUIETER:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
