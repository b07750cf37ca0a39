"""Keeping leave to read a limited source while a transfer runs: renewed, and given back at its end.

The operator counts a lease until it must have run out, so questions follow one another: an answer
that comes too late is not used.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modelcache_agent.fetch import GrantUnavailableError
from modelcache_agent.ports.grants import Slot
from modelcache_api.wire import SlotQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from modelcache_agent.fetch import SourceGate
    from modelcache_agent.ports.clock import Clock
    from modelcache_agent.ports.grants import Grants

_log = logging.getLogger(__name__)
_AGAIN_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 10.0
_SHORTEST_SECONDS: Final = 0.1
# The transfer is over then; without it the lease runs out by itself.
_GIVE_BACK_SECONDS: Final = 2.0


@dataclass(slots=True)
class Lease:
    """`is_lost`: it ran out, or was not renewed, and the transfer was stopped for that."""

    is_lost: bool = False


class SlotKeeper:
    """One lease for each transfer of a version that a limit covers."""

    def __init__(self, grants: Grants, gate: SourceGate, clock: Clock) -> None:
        self._grants = grants
        self._gate = gate
        self._clock = clock

    @asynccontextmanager
    async def keeping(
        self, uid: str, slot: Slot | None, stop: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[Lease]:
        """Renew while the body runs; `stop` is called once if the lease is lost."""
        lease = Lease()
        if slot is None or not slot.answer.is_limited:
            yield lease
            return
        self._apply(uid, slot)
        task = asyncio.create_task(self._keep(uid, slot, lease, stop), name=f"slot-{uid}")
        try:
            yield lease
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._gate.forget(uid)
            await self._give_back(uid)

    async def _keep(
        self, uid: str, slot: Slot, lease: Lease, stop: Callable[[], Awaitable[None]]
    ) -> None:
        pause = slot.answer.ask_again_seconds
        while True:
            await asyncio.sleep(self._shorten(pause, slot))
            answered = await self._ask(uid, slot)
            if answered is None or (not answered.answer.leads and self._is_held(slot)):
                pause = _AGAIN_SECONDS
            elif not answered.answer.is_limited:
                self._gate.forget(uid)
                return
            else:
                had, slot = self._has(slot), answered
                self._apply(uid, slot)
                pause = slot.answer.ask_again_seconds
                if had and not self._has(slot):
                    break
            if self._has(slot) and not self._is_held(slot):
                break
        _log.warning("uid=%s: the source may not be read any more: %s", uid, slot.answer.message)
        lease.is_lost = True
        await stop()

    async def _ask(self, uid: str, slot: Slot) -> Slot | None:
        """The answer; None if there is none in time."""
        is_held = self._is_held(slot)
        query = SlotQuery(
            wants=is_held or self._gate.is_wanted(uid),
            holds=is_held,
            bytes_per_second=slot.answer.bytes_per_second if is_held else None,
        )
        try:
            async with asyncio.timeout(self._shorten(_ANSWER_SECONDS, slot)):
                return await self._grants.ask_slot(uid, query)
        except (GrantUnavailableError, TimeoutError) as error:
            _log.info("uid=%s: the slot is not renewed yet: %s", uid, error or "no answer")
            return None

    async def _give_back(self, uid: str) -> None:
        with suppress(GrantUnavailableError, TimeoutError):
            async with asyncio.timeout(_GIVE_BACK_SECONDS):
                await self._grants.ask_slot(uid, SlotQuery(wants=False))

    def _apply(self, uid: str, slot: Slot) -> None:
        if slot.answer.is_granted:
            self._gate.open(uid, slot.until, slot.answer.bytes_per_second)
        else:
            self._gate.close(uid)

    def _has(self, slot: Slot) -> bool:
        return slot.answer.is_granted

    def _is_held(self, slot: Slot) -> bool:
        return slot.until > self._gate.now()

    def _shorten(self, seconds: float, slot: Slot) -> float:
        """A little less than stated, so that nodes spread; never beyond the lease's end."""
        seconds *= 0.8 + 0.2 * self._clock.jitter()
        if self._has(slot):
            seconds = min(seconds, slot.until - self._gate.now())
        return max(_SHORTEST_SECONDS, seconds)
