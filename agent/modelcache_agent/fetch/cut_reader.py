"""Reads one part of a cut file: literal bytes, and as many answers of the source as it takes."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.cut_plan import Literal, plan_reads
from modelcache_agent.fetch.part_reader import PartReader, RangesIgnoredError
from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_api.names import Reason
from modelcache_api.quoted import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.decide.cut_plan import Request
    from modelcache_agent.fetch.job_state import JobState
    from modelcache_agent.fetch.routes import PeerRoute
    from modelcache_agent.fetch.verdict import Ask
    from modelcache_api.cut import Cut, Range
    from modelcache_api.wire import GrantedFile

_DROP_BYTES: Final = 64 * 1024


class CutReader:
    """In place of a PartReader, where the source has more than is wanted of a file.

    What does not come is a RefusalError of that request; pieces that were complete by then stay.
    """

    def __init__(self, reader: PartReader, cut: Cut) -> None:
        self._reader = reader
        self._cut = cut
        self._spans: deque[bytes | tuple[Request, Range]] = deque()
        self._used = 0  # of the first span
        self._position = self._answer_end = -1  # in the source's file; equal where nothing is open
        self._scratch = memoryview(bytearray(_DROP_BYTES))

    @property
    def status(self) -> int | None:
        """The latest answer's HTTP status."""
        return self._reader.status

    def open(
        self, job: JobState, grant: GrantedFile, ask: Ask, _route: PeerRoute | None = None
    ) -> int:
        """Plan the requests; returns the end of what was asked for, all of which will come."""
        self._job, self._grant = job, grant
        self._ask = replace(ask, size_bytes=self._cut.whole_bytes)
        for step in plan_reads(self._cut, ask.start, ask.end):
            if isinstance(step, Literal):
                self._spans.append(step.data)
            else:
                self._spans.extend((step, kept) for kept in step.kept)
        return ask.end

    def read(self, view: memoryview, _offset: int, take: Callable[[memoryview], object]) -> None:
        """Fill the view with the next bytes, and give them to `take` in order.

        Raises:
            RefusalError: they did not come. StoppedError.
        """
        filled = 0
        while filled < len(view):
            span = self._spans[0]
            size = len(span) if isinstance(span, bytes) else span[1][1] - span[1][0]
            target = view[filled : filled + size - self._used]
            if isinstance(span, bytes):
                target[:] = span[self._used : self._used + len(target)]
                take(target)
            else:
                self._read_source(span[0], span[1][0] + self._used, target, take)
            filled += len(target)
            self._used += len(target)
            if self._used == size:
                self._spans.popleft()
                self._used = 0

    def expect_end(self) -> None:
        """Nothing: every answer was held to its end."""

    def close(self) -> None:
        """End the exchange."""
        self._reader.close()
        self._position = self._answer_end = -1

    def _read_source(
        self, request: Request, start: int, view: memoryview, take: Callable[[memoryview], object]
    ) -> None:
        done = 0
        while done < len(view):
            wanted = start + done
            if not self._position <= wanted < self._answer_end:
                self._ask_for(request, wanted)
            while self._position < wanted:
                gap = min(wanted - self._position, len(self._scratch))
                self._advance(request, self._scratch[:gap], lambda _: None)
            count = min(len(view) - done, self._answer_end - self._position)
            self._advance(request, view[done : done + count], take)
            done += count

    def _ask_for(self, request: Request, start: int) -> None:
        self.close()
        ask = replace(self._ask, start=start, end=request.end)
        try:
            end = self._reader.open(self._job, self._grant, ask)
        except RangesIgnoredError:
            message = f"{quote(ask.path)}: the server sends all of it where a part is asked for"
            raise RefusalError(Refusal(Reason.SOURCE_ERROR, message, Cure.NONE)) from None
        self._position, self._answer_end = start, end

    def _advance(
        self, request: Request, view: memoryview, take: Callable[[memoryview], object]
    ) -> None:
        self._reader.read(view, self._position, take)
        self._position += len(view)
        if self._position == self._answer_end:
            if self._answer_end == request.end:
                self._reader.expect_end()
            self.close()
