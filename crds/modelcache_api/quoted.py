"""Names from a store, a hub or another node in a message: hostile until quoted and bounded."""

from __future__ import annotations


def quote(text: str, limit: int = 160) -> str:
    """The text in quotes, ASCII only, at most about twice `limit` characters.

    Both ends are shown: names of files differ at the end more often than not.
    """
    half = limit // 2
    quoted = ascii(text if len(text) <= limit else f"{text[:half]}...{text[-half:]}")
    return quoted if len(quoted) <= 2 * limit else f"{quoted[:limit]}...{quoted[-limit:]}"
