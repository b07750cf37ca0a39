"""Waiting until there is something to fetch: another node reads the source, or a limit is full.

Another node is not believed for longer than it works.
"""

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

    OnState = Callable[[EntryState, str], None]

_log = logging.getLogger(__name__)
_TIMEOUT: Final = aiohttp.ClientTimeout(total=3.0)
_LOOK_SECONDS: Final = 4.0
# Nobody is named yet: the leader is asked for, or the reader has not reported itself.
_LEADER_SECONDS: Final = 1.0
# Long enough for the others to agree on the next reader, which may be the same one again.
_AVOID_SECONDS: Final = 120.0
_MAX_ANSWER_BYTES: Final = 4096


class GrantQueue:
    """Opens grants, patiently. `has_turn` False: so many models are fetched here as may be."""

    def __init__(
        self,
        grants: Grants,
        book: PeerBook | None,
        clock: Clock,
        has_turn: Callable[[], bool] = lambda: True,
    ) -> None:
        self._grants = grants
        self._book = book
        self._clock = clock
        self._has_turn = has_turn
        self._turn = asyncio.Lock()

    async def open(self, entry: EntrySpec, news: asyncio.Event, on_state: OnState) -> OpenedGrant:
        """The grant, once there is something to fetch.

        `news` is set when the entry may have changed. Raises GrantUnavailableError.
        """
        began, silence = self._clock.monotonic(), None
        seconds, is_queued = _LEADER_SECONDS, False
        while True:
            news.clear()
            waited = self._clock.monotonic() - began
            try:
                if is_queued:
                    opened = await self._open_in_turn(entry, waited, on_state)
                else:
                    opened = await self._grants.open(entry, waited)
            except MustWaitError as wait:
                # Looking for the replica that decides is no news for who waits already.
                if wait.slot is None or wait.slot.leads or not is_queued:
                    on_state(EntryState.PENDING, "" if wait.slot is None else wait.slot.message)
                is_queued = wait.slot is not None
                if wait.holders:
                    # Only the search for the leader counts, and there is one: somebody reads.
                    began = self._clock.monotonic()
                silence = await self._look(entry, wait.holders, silence)
                seconds = _LOOK_SECONDS if wait.holders else _LEADER_SECONDS
                if wait.slot is not None:
                    seconds = wait.slot.ask_again_seconds
            else:
                if opened is not None:
                    on_state(EntryState.DOWNLOADING, "")
                    return opened
            with suppress(TimeoutError):
                jitter = 0.75 + 0.5 * self._clock.jitter()
                await asyncio.wait_for(news.wait(), seconds * jitter)

    async def _open_in_turn(
        self, entry: EntrySpec, waited: float, on_state: OnState
    ) -> OpenedGrant | None:
        """None while this node has no turn for it: a slot of the fleet would be held in vain."""
        async with self._turn:
            if not self._has_turn():
                return None
            opened = await self._grants.open(entry, waited)
            on_state(EntryState.DOWNLOADING, "")
            return opened

    async def _look(
        self, entry: EntrySpec, holders: Sequence[Holder], silence: Silence | None
    ) -> Silence | None:
        if not holders or self._book is None:
            return silence
        reader = holders[0]
        verified = await self._ask(self._book, entry.uid, reader)
        now = self._clock.monotonic()
        silence = follow(silence, reader.node_uid, verified, now)
        if not is_given_up(silence, now):
            return silence
        _log.warning("uid=%s: node %s is not waited for any longer", entry.uid, reader.node_uid)
        self._book.avoid(entry.uid, reader.node_uid, _AVOID_SECONDS)
        return None

    async def _ask(self, book: PeerBook, uid: str, reader: Holder) -> int | None:
        """How many bytes the node has, or None: no answer, or it does not fetch the version."""
        route = book.ask_progress(uid, reader)
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
