"""Names from a store in a message: hostile until quoted and bounded."""

from __future__ import annotations

import json
from typing import Final

_LIMIT: Final = 160


def quote_key(key: str, limit: int = _LIMIT) -> str:
    """The key in quotes, ASCII only, at most about `limit` characters; for messages."""
    shown = key if len(key) <= limit else f"{key[: limit - 3]}..."
    quoted = json.dumps(shown, ensure_ascii=True)
    return quoted if len(quoted) <= 2 * limit else f'{quoted[: 2 * limit]}..."'
