"""An alarm clock for the loop: many calls between two turns are one."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Level, not edge: a call before the wait ends it at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Something happened; look again."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Return when something happened or the time is over."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return
        self._event.clear()
