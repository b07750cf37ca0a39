"""Waiting until another node has read the source, without believing it for longer than it works."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import aiohttp

from modelcache_agent.decide.peer_choice import Silence, follow, is_given_up
from modelcache_agent.ports.grants import MustWaitError
from modelcache_api.names import EntryState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modelcache_agent.peers.book import PeerBook
    from modelcache_agent.ports.clock import Clock
    from modelcache_agent.ports.grants import Grants, OpenedGrant
    from modelcache_api.v1alpha1.cache_node import EntrySpec
    from modelcache_api.wire import Holder

_log = logging.getLogger(__name__)
_TIMEOUT: Final = aiohttp.ClientTimeout(total=3.0)
_LOOK_SECONDS: Final = 4.0
# Nobody is named yet: the leader is asked for, or the reader has not reported itself.
_LEADER_SECONDS: Final = 1.0
# Long enough for the others to agree on the next reader, which may be the same one again.
_AVOID_SECONDS: Final = 120.0
_MAX_ANSWER_BYTES: Final = 4096


class PeerQueue:
    """Opens grants, patiently."""

    def __init__(self, grants: Grants, book: PeerBook, clock: Clock) -> None:
        self._grants = grants
        self._book = book
        self._clock = clock

    async def open(
        self, entry: EntrySpec, news: asyncio.Event, on_state: Callable[[EntryState], None]
    ) -> OpenedGrant:
        """The grant, once there is something to fetch.

        `news` is set when the entry may have changed. Raises GrantUnavailableError.
        """
        began, silence = self._clock.monotonic(), None
        while True:
            news.clear()
            waited = self._clock.monotonic() - began
            try:
                opened = await self._grants.open(entry, waited)
            except MustWaitError as wait:
                on_state(EntryState.PENDING)
                silence = await self._look(entry, wait.holders, silence)
                seconds = _LOOK_SECONDS if wait.holders else _LEADER_SECONDS
                with suppress(TimeoutError):
                    jitter = 0.75 + 0.5 * self._clock.jitter()
                    await asyncio.wait_for(news.wait(), seconds * jitter)
            else:
                on_state(EntryState.DOWNLOADING)
                return opened

    async def _look(
        self, entry: EntrySpec, holders: Sequence[Holder], silence: Silence | None
    ) -> Silence | None:
        if not holders:
            return silence
        reader = holders[0]
        verified = await self._ask(entry.uid, reader)
        now = self._clock.monotonic()
        silence = follow(silence, reader.node_uid, verified, now)
        if not is_given_up(silence, now):
            return silence
        _log.warning("uid=%s: node %s is not waited for any longer", entry.uid, reader.node_uid)
        self._book.avoid(entry.uid, reader.node_uid, _AVOID_SECONDS)
        return None

    async def _ask(self, uid: str, reader: Holder) -> int | None:
        """How many bytes the node has, or None: no answer, or it does not fetch the version."""
        route = self._book.ask_progress(uid, reader)
        if route is None:
            return None
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.get(
                    route.url,
                    headers=route.headers,
                    ssl=route.context,
                    server_hostname=route.server_name,
                    allow_redirects=False,
                ) as answer,
            ):
                if answer.status != 200:  # noqa: PLR2004 - HTTP
                    return None
                data = await answer.content.read(_MAX_ANSWER_BYTES)
                return _parse(data)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def _parse(data: bytes) -> int | None:
    text = data.decode("ascii", "replace").strip()
    number = text.removeprefix('{"verifiedBytes": ').removesuffix("}")
    return int(number) if number.isdecimal() and len(number) < 20 else None  # noqa: PLR2004
