"""Addresses of plain web servers: one spelling for each, so that a rule covers what it names. Pure.

Whatever servers read in more than one way is refused: steps back however they are written, escaped
slashes and dots, a second escape, path parameters, user names, queries.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

_HOST: Final = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])"
_SAFE: Final = "._~!$&()*+,=:@-"
# As escapes only a space and what is not ASCII.
_PATH: Final = rf"([A-Za-z0-9{_SAFE[:-1]}/-]|%20|%[89A-F][0-9A-F])*"
WEB_ADDRESS: Final = rf"https?://{_HOST}(:[1-9][0-9]{{0,4}})?/{_PATH}"
"""A regular expression that RE2 reads alike. It does not look at single parts of the path."""


def quote_path(path: str) -> str:
    """The path as it stands in an address."""
    return quote(path, safe=f"/{_SAFE}")


def unquote_path(path: str) -> str:
    """The path that an address spells.

    Raises:
        ValueError: it is not the spelling that `quote_path` gives.
    """
    plain = unquote(path, errors="strict")
    if quote_path(plain) != path:
        raise ValueError("the path is escaped in another way than it need be")
    return plain
