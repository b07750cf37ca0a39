"""Waiting for a condition, with a deadline and a name for what is awaited."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

from modelcache_testbed.errors import TestbedError


def wait_until(
    condition: Callable[[], bool],
    *,
    seconds: float,
    what: str,
    interval_seconds: float = 0.05,
) -> None:
    """Return as soon as ``condition`` holds.

    The condition may raise to give up early. Raises TestbedError naming ``what`` when the
    deadline passes first.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            message = f"{what}: not within {seconds:g} s"
            raise TestbedError(message)
        time.sleep(interval_seconds)
