"""One line per record: time, level, logger, message; control characters are quoted."""

from __future__ import annotations

import logging
import sys
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Warns that it leaves signals alone, as it should on a thread of its own.
_MUTED: Final = "kopf._core.reactor.running"
# Chatty about what our own lines say better.
_QUIETER: Final = ("kopf", "botocore", "aiohttp", "kubernetes", "urllib3", "asyncio")


class _OneLine(logging.Formatter):
    """Tracebacks of our own bugs keep their lines; those of kopf are about the API server."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name.startswith("kopf"):
            record.exc_info = record.exc_text = None
        text = super().format(record)
        if record.exc_info:
            return text
        return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def set_up_logs(level: str) -> None:
    """Log to standard error. To be called once, by the program."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _OneLine(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger(_MUTED).setLevel(logging.ERROR)
    for name in _QUIETER:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
