"""The store, from the event loop: one thread, one call at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
# Links, renames and fsyncs: far longer means that the disk is gone.
_DEADLINE_SECONDS: Final = 300.0


class StoreThread:
    """Runs blocking calls in order. A call that outlives its deadline goes on in the thread."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def call(
        self,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """The function's result.

        Raises:
            TimeoutError: the disk does not answer.
        """
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))
        return await asyncio.wait_for(asyncio.shield(future), _DEADLINE_SECONDS)

    async def close(self, seconds: float) -> bool:
        """Wait for the call in progress; False if it does not end in time."""
        ended = asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)
        try:
            await asyncio.wait_for(ended, seconds)
        except TimeoutError:
            return False
        return True
