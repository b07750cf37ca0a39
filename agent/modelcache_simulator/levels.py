"""The tiers, and the mean access time of all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

GPU: Final = "gpu"
HOST: Final = "host"
DISK: Final = "disk"
STORE: Final = "store"
# Fastest first.
TIERS: Final = (GPU, HOST, DISK)


def mean_access_time(
    hit_rates: Sequence[float], seconds: Sequence[float], slow_seconds: float
) -> float:
    """h1*t1 + (1-h1)*(h2*t2 + (1-h2)*(... + slow)), fastest tier first.

    Each rate is among what all faster tiers missed.
    """
    time = slow_seconds
    for rate, own in zip(reversed(hit_rates), reversed(seconds), strict=True):
        time = rate * own + (1 - rate) * time
    return time
