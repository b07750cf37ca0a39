"""How many writes a second the API server is asked to bear."""

from __future__ import annotations

import asyncio


class TokenBucket:
    """`burst` at once, `per_second` from then on; first come, first served."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at: float | None = None
        self._turn = asyncio.Lock()

    async def take(self) -> None:
        """Wait until one token is there, and take it."""
        async with self._turn:
            self._fill()
            if self._tokens < 1.0:
                await asyncio.sleep((1.0 - self._tokens) / self._per_second)
                self._fill()
            self._tokens -= 1.0

    def _fill(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._filled_at is not None:
            gained = (now - self._filled_at) * self._per_second
            self._tokens = min(self._burst, self._tokens + gained)
        self._filled_at = now
