"""Reads one part of one file from the source, piece by piece, into buffers."""

from __future__ import annotations

import http.client
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from modelcache_agent.decide.content_check import SNIFF_BYTES
from modelcache_agent.fetch.egress import PEERS, name_source
from modelcache_agent.fetch.refusal import Cure, Refusal, RefusalError
from modelcache_agent.fetch.s3_error import MAX_ERROR_BODY_BYTES
from modelcache_agent.fetch.scheduler import StoppedError
from modelcache_agent.fetch.verdict import (
    Ask,
    Head,
    if_match_value,
    judge_failure,
    judge_foreign_body,
    judge_success,
)
from modelcache_api.names import Reason
from modelcache_api.quoted import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.fetch.clock import Clock
    from modelcache_agent.fetch.connection import ConnectionCache, Exchange
    from modelcache_agent.fetch.counters import CounterBoard
    from modelcache_agent.fetch.job_state import JobState
    from modelcache_agent.fetch.reply import Reply
    from modelcache_agent.fetch.routes import PeerRoute
    from modelcache_agent.fetch.watch import StreamWatch
    from modelcache_api.wire import GrantedFile

_USER_AGENT: Final = "modelcache-agent"
_SUCCESSES: Final = (200, 206)
_OUR_HEADERS: Final = frozenset(
    {"range", "if-match", "if-unmodified-since", "accept-encoding", "connection"}
)
_MAX_HEADER_LENGTH: Final = 256
# What came is hashed at once, while much of it is in the core's cache: from memory blake3 takes
# half as long again. A step is bounded below, because TLS comes by 16 KiB and a call costs time,
# and it ends where blake3's tree does.
_STEP_BYTES: Final = 512 * 1024
_GRAIN_BYTES: Final = 64 * 1024


class RangesIgnoredError(Exception):
    """The server sent the whole file where a part of it was asked for."""


class PartReader:
    """One response, read in order. Everything that can go wrong is a RefusalError."""

    def __init__(
        self,
        cache: ConnectionCache,
        watch: StreamWatch,
        clock: Clock,
        counters: CounterBoard,
    ) -> None:
        self._cache = cache
        self._watch = watch
        self._clock = clock
        self._counters = counters
        self._exchange: Exchange | None = None
        self._route: PeerRoute | None = None
        self.status: int | None = None
        """The answer's HTTP status, once it is there."""

    def open(
        self, job: JobState, grant: GrantedFile, ask: Ask, route: PeerRoute | None = None
    ) -> int:
        """Send the request and judge the answer; returns the offset after the last byte to come.

        With a route, another node is asked instead of the source.

        Raises:
            RefusalError, StoppedError, RangesIgnoredError
        """
        self._job, self._ask, self._route = job, ask, route
        self._source = name_source(grant.url) if route is None else PEERS
        self._counters.add("requests")
        self._watch.start_waiting()
        try:
            if route is not None:
                peer = replace(route, headers=_peer_headers(route, ask))
                exchange = self._cache.get_from_peer(peer)
            else:
                trusted = grant.ca_bundle or job.spec.ca_bundle
                exchange = self._cache.get(grant.url, _headers(grant, ask), trusted)
        except RefusalError as error:
            self._raise_if_stopped()
            refusal = error.refusal
            message = f"{quote(ask.path)}: {refusal.message}"
            raise RefusalError(Refusal(refusal.reason, message, refusal.cure)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error, "before an answer") from None
        self._exchange, self.status = exchange, exchange.reply.status
        return self._judge(exchange)

    def _judge(self, exchange: Exchange) -> int:
        reply, ask = exchange.reply, self._ask
        head = Head(
            status=reply.status,
            etag=_bounded(reply.header("ETag")),
            content_range=_bounded(reply.header("Content-Range")),
            content_length=reply.content_length,
            last_modified=_bounded(reply.header("Last-Modified")),
            content_encoding=_bounded(reply.header("Content-Encoding")),
            retry_after=_bounded(reply.header("Retry-After")),
            date=_bounded(reply.header("Date")),
            received_at=self._clock.now(),
        )
        if head.status not in _SUCCESSES:
            body = reply.read_beginning(MAX_ERROR_BODY_BYTES)
            self._raise_if_stopped()
            raise RefusalError(judge_failure(ask, head, body))
        if reply.framing_fault is not None:
            message = f"{quote(ask.path)}: the answer is not valid HTTP: {reply.framing_fault}"
            raise RefusalError(Refusal(Reason.TRANSFER_FAILED, message))
        verdict = judge_success(ask, head)
        if isinstance(verdict, Refusal):
            raise RefusalError(judge_foreign_body(ask, verdict, reply.read_beginning(SNIFF_BYTES)))
        if verdict.start != ask.start or verdict.end > ask.end:
            raise RangesIgnoredError
        self._end = verdict.end
        self._watch.stop_waiting()
        return self._end

    def read(self, view: memoryview, offset: int, take: Callable[[memoryview], object]) -> None:
        """Fill the view with the next bytes of the body, which lie at `offset` of the file.

        `take` is given all of them in order, a step at a time, while they are in the core's cache.

        Raises:
            RefusalError: the body ended early or stalled. StoppedError.
        """
        reply, watch = self._reply(), self._watch
        filled, taken, allowed, wanted = 0, 0, 0, len(view)
        limited = self._job.spec.uid if self._route is None else None
        watch.start_waiting()
        try:
            while filled < wanted:
                if filled == allowed:
                    allowed += watch.await_turn(wanted - filled, limited)
                count = reply.read_into(view[filled:allowed])
                if count == 0:
                    break
                filled += count
                watch.received += count
                if filled == wanted or filled - taken >= _STEP_BYTES:
                    ready = wanted if filled == wanted else filled - filled % _GRAIN_BYTES
                    take(view[taken:ready])
                    taken = ready
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error, self._came(offset + filled)) from None
        finally:
            watch.stop_waiting()
            self._counters.add_received(self._job.spec, self._source, filled)
            if self._route is not None:
                self._counters.add("peer_bytes", filled)
        if filled < wanted:
            raise self._broken(None, self._came(offset + filled))
        self._raise_if_stopped()

    def expect_end(self) -> None:
        """Refuse a body that does not end with the asked range. Raises RefusalError."""
        reply = self._reply()
        if reply.is_finished or self._end < self._ask.end:
            return
        self._watch.start_waiting()
        try:
            goes_on = reply.read_into(memoryview(bytearray(1)))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error, "before the end of the answer") from None
        if goes_on:
            ask = self._ask
            message = f"{quote(ask.path)}: expected {ask.end - ask.start} bytes, received more"
            raise RefusalError(Refusal(Reason.TRANSFER_FAILED, message))

    def close(self) -> None:
        """End the exchange; a connection at a message boundary is kept for the next request."""
        self._watch.stop_waiting()
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def _reply(self) -> Reply:
        if self._exchange is None:
            message = "open() comes first"
            raise RuntimeError(message)
        return self._exchange.reply

    def _came(self, offset: int) -> str:
        ask = self._ask
        return (
            f"expected {ask.end - ask.start} bytes ({ask.start}-{ask.end - 1}),"
            f" received {offset - ask.start}"
        )

    def _broken(self, error: Exception | None, what: str) -> RefusalError | StoppedError:
        if self._job.is_stopped:
            return StoppedError()
        name = quote(self._ask.path)
        if self._watch.was_stalled or isinstance(error, TimeoutError):
            self._watch.was_stalled = False
            message = f"{name}: the transfer stalled: {what}"
            return RefusalError(Refusal(Reason.TRANSFER_STALLED, message))
        message = f"{name}: the connection broke: {what}"
        return RefusalError(Refusal(Reason.TRANSFER_FAILED, message, Cure.RETRY))

    def _raise_if_stopped(self) -> None:
        if self._job.is_stopped:
            raise StoppedError


def _peer_headers(route: PeerRoute, ask: Ask) -> dict[str, str]:
    return {**route.headers, "User-Agent": _USER_AGENT, "Range": f"bytes={ask.start}-{ask.end - 1}"}


def _headers(grant: GrantedFile, ask: Ask) -> dict[str, str]:
    headers = {"User-Agent": _USER_AGENT}
    headers |= {k: v for k, v in grant.headers.items() if k.lower() not in _OUR_HEADERS}
    headers["Range"] = f"bytes={ask.start}-{ask.end - 1}"
    etag = if_match_value(ask.etag)
    if etag is not None:
        headers["If-Match"] = etag
    elif ask.last_modified is not None:
        headers["If-Unmodified-Since"] = ask.last_modified
    return headers


def _bounded(value: str | None) -> str | None:
    return None if value is None else value[:_MAX_HEADER_LENGTH]
