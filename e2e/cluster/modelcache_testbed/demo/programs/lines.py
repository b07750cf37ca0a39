"""How the demo talks with its programs: a line of JSON for each line that it writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def serve(answer: Callable[[str], Any]) -> None:
    """Say that the libraries are there, then answer each line, until nobody asks any more."""
    _say(None)
    for line in sys.stdin:
        _say(answer(line.strip()))


def _say(found: Any) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
