"""A mean over seeds and how sure it is. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

# Two-sided 95 % points of Student's t by degrees of freedom; the normal distribution's beyond.
_T95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL: Final = 1.960


class Interval(NamedTuple):
    """A mean with the ends of its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def find_interval(samples: Sequence[float]) -> Interval:
    """By Student's t. One sample has no interval: low and high are the mean.

    Raises:
        ValueError: there is no sample.
    """
    if not samples:
        raise ValueError("there is no sample")
    mean = statistics.fmean(samples)
    freedom = len(samples) - 1
    if not freedom:
        return Interval(mean, mean, mean)
    point = _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL
    half = point * statistics.stdev(samples) / math.sqrt(len(samples))
    return Interval(mean, mean - half, mean + half)
