"""Threads that all namespaces share, a few at once for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class NamespaceTurns:
    """Runs blocking calls. Another namespace's server may be slow on purpose."""

    def __init__(self, threads: int, at_once: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._at_once = at_once
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def run(self, namespace: str, work: Callable[[], _T]) -> _T:
        """The work's result, once the namespace has a turn.

        A turn ends with its thread: whoever gives up waiting leaves the thread behind.
        """
        turn = self._turns.setdefault(namespace, asyncio.Semaphore(self._at_once))
        loop = asyncio.get_running_loop()

        def end(_: Future[_T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(turn.release)

        await turn.acquire()
        try:
            asked = self._pool.submit(work)
        except BaseException:
            turn.release()
            raise
        asked.add_done_callback(end)
        return await asyncio.wrap_future(asked)

    def close(self) -> None:
        """End the threads once their present calls are over."""
        self._pool.shutdown(wait=False, cancel_futures=True)
