"""The clock by which use is measured: Unix time that no step of the wall clock moves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def make_ageing_clock() -> Callable[[], float]:
    """Unix time as it is now, and from then on by the monotonic clock.

    A step forward would make everything look unused for days; a step back would keep what was used
    meanwhile for as long. The wall clock is believed again at the next start.
    """
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: began + time.clock_gettime(time.CLOCK_BOOTTIME)
