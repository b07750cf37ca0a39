"""One HTTP response, and whether it says clearly where its body ends."""

from __future__ import annotations

import http.client
import re
from http import HTTPStatus
from typing import Final

_LENGTH: Final = re.compile(r"[0-9]{1,19}")
# The library takes these for empty whatever they bring along.
_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def describe_framing_fault(response: http.client.HTTPResponse) -> str | None:
    """Why it is not certain where the body ends, or None.

    The library guesses in these cases: it takes the first of two lengths, and the frames of a
    transfer coding that it does not know for the body.
    """
    codings = response.headers.get_all("Transfer-Encoding", [])
    lengths = {value.strip(" \t") for value in response.headers.get_all("Content-Length", [])}
    if codings and (len(codings) > 1 or not response.chunked):
        return "its transfer coding is not known"
    if codings and lengths:
        return "it is chunked and has a length"
    if len(lengths) > 1:
        return "it has two lengths"
    if any(_LENGTH.fullmatch(length) is None for length in lengths):
        return "its length is no number"
    return None


class Reply:
    """One response; its body is read straight into the caller's memory."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._response = response
        self._unread = response.length
        self.status = response.status
        self.is_finished = False
        self.framing_fault = describe_framing_fault(response)

    def header(self, name: str) -> str | None:
        """A header's value, or None."""
        return self._response.getheader(name)

    @property
    def content_length(self) -> int | None:
        """Announced body bytes that are still to come; None if not announced."""
        return self._unread

    def read_into(self, view: memoryview) -> int:
        """At most one read from the socket; 0 at the body's end. Raises OSError, HTTPException."""
        if self._response.fp is None:
            return 0
        if self._response.chunked:
            data = self._response.read1(min(len(view), 1 << 20))
            # The library takes a chunk of negative size for one without an end.
            if len(data) > len(view) or (self._response.chunk_left or 0) < 0:
                raise http.client.IncompleteRead(b"")
            view[: len(data)] = data
            self.is_finished = self._response.fp is None
            return len(data)
        if self._unread is not None:
            view = view[: self._unread]
        if not view:
            return 0
        # HTTPResponse.readinto would block until the view is full; one read at a time keeps the
        # count of received bytes true for the watch on stalled streams.
        count: int = self._response.fp.readinto1(view)
        if self._unread is not None:
            self._unread -= count
            self.is_finished = self._unread == 0
        return count

    def read_beginning(self, limit: int) -> bytes:
        """At most `limit` bytes of the body; what fails or is late is left out."""
        body = bytearray(limit)
        filled = 0
        try:
            while filled < limit:
                count = self.read_into(memoryview(body)[filled:])
                if count == 0:
                    break
                filled += count
        except (OSError, http.client.HTTPException):
            self.is_finished = False
        return bytes(body[:filled])

    @property
    def may_be_reused(self) -> bool:
        """True if the connection is at a message boundary and stays open.

        What follows an answer that ends nobody knows where would be taken for the next answer.
        """
        response = self._response
        is_certain = self.framing_fault is None and self.status not in _BODILESS
        is_certain = is_certain and self.status >= HTTPStatus.OK
        done = self.is_finished or self._unread == 0
        stays = not response.will_close and self._connection.sock is not None
        return is_certain and done and stays

    def close(self) -> None:
        """Give up the response; the connection stays with its cache."""
        self._response.close()
