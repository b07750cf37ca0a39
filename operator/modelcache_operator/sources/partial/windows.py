"""A file of the source as whoever parses its beginning sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from modelcache_api.cut import MAX_LITERAL_BYTES
from modelcache_operator.sources.partial.cutting import too_many_tensors

# Most headers fit into the first question.
_FIRST_BYTES: Final = 256 * 1024
# Of one request; more is asked for in several.
MAX_READ_BYTES: Final = 4 * 1024 * 1024


class SourceWindow:
    """Reads in order, a little ahead; holds one answer. `fetch(start, end)` gives those bytes."""

    def __init__(self, size_bytes: int, fetch: Callable[[int, int], bytes]) -> None:
        self._size = size_bytes
        self._fetch = fetch
        self._start = 0
        self._held = b""

    def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes, which are inside of the file.

        Raises:
            SourceError: they are more than one entry of a header that we could keep.
        """
        if length > MAX_LITERAL_BYTES:
            raise too_many_tensors()
        found = bytearray()
        while len(found) < length:
            at = offset + len(found)
            if not self._start <= at < self._start + len(self._held):
                ahead = min(max(length - len(found), _FIRST_BYTES), MAX_READ_BYTES)
                self._held = self._fetch(at, min(at + ahead, self._size))
                self._start = at
            begin = at - self._start
            found += self._held[begin : begin + length - len(found)]
        return bytes(found)
