"""One line for each event, to stderr; hostile text cannot break out of its line."""

from __future__ import annotations

import json
import logging
import sys
import time

from modelcache_api.log_fields import add_fields


class LineFormatter(logging.Formatter):
    """`time level logger message fields`, with everything unprintable escaped."""

    def __init__(self, node: str = "") -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback is folded into it."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        name = record.name.removeprefix("modelcache_agent.")
        text = record.getMessage()
        if record.exc_info:
            text = f"{text} | {self.formatException(record.exc_info)}"
        text = add_fields(text, node=self._node)
        safe = text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1]
        return f"{moment}.{int(record.msecs):03d}Z {record.levelname.lower()} {name}: {safe}"


def set_up_logging(level: str, *, node: str = "") -> None:
    """Our own loggers at the level, everybody else's from warnings on; each line names the node."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(node))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("modelcache_agent", "modelcache_kube"):
        logging.getLogger(name).setLevel(level.upper())
