"""Sees at an HTTP client which watches are open, whoever uses it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Final

import aiohttp

_WATCH: Final = ("watch", "true")


def trace_watches(
    opened: Callable[[str], None], closed: Callable[[str], None]
) -> aiohttp.TraceConfig:
    """Tells of the watches of a client, by the last part of their paths.

    The client has one reader of each resource: one that asks anew, for a list or a watch, has lost
    the watch it had.
    """

    async def on_start(
        _session: aiohttp.ClientSession,
        _context: SimpleNamespace,
        asked: aiohttp.TraceRequestStartParams,
    ) -> None:
        closed(asked.url.name)

    async def on_end(
        _session: aiohttp.ClientSession,
        _context: SimpleNamespace,
        answered: aiohttp.TraceRequestEndParams,
    ) -> None:
        is_watch = _WATCH in answered.url.query.items()
        if is_watch and answered.response.status == HTTPStatus.OK:
            opened(answered.url.name)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(on_start)
    trace.on_request_end.append(on_end)
    return trace
