"""Traces that nobody recorded: skewed, with days and nights, and with favourites that change."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from modelcache_simulator.errors import SimulationError
from modelcache_simulator.trace import Request

_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How a synthetic trace looks.

    `zipf` is the exponent of popularity (0: all alike), `diurnal` from 0 (no nights) to 1 (nothing
    at midnight). After each `shift_seconds` the most popular tenth changes places with others
    (0: never). Gaps and durations are exponential.
    """

    models: int = 100
    requests: int = 100_000
    mean_gap_seconds: float = 60.0
    mean_seconds: float = 30.0
    zipf: float = 0.9
    diurnal: float = 0.5
    shift_seconds: float = 0.0
    starts_at: float = 0.0

    def check(self) -> None:
        """Raises SimulationError if a figure is out of its range."""
        wrong = {
            "models": self.models < 1,
            "requests": self.requests < 1,
            "gap": not 0 < self.mean_gap_seconds < math.inf,
            "duration": not 0 <= self.mean_seconds < math.inf,
            "zipf": not 0 <= self.zipf <= 5,  # noqa: PLR2004 - beyond it one model has all
            "diurnal": not 0 <= self.diurnal <= 1,
            "shift": not 0 <= self.shift_seconds < math.inf,
        }
        if found := [name for name, is_wrong in wrong.items() if is_wrong]:
            raise SimulationError(
                f"out of range: {', '.join(found)} (at least one model and request, a gap above 0, "
                "zipf from 0 to 5, diurnal from 0 to 1, no negative time)"
            )


def make_requests(shape: Shape, seed: int) -> Iterator[Request]:
    """The trace; equal shape and seed give equal requests."""
    shape.check()
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    names = [f"m{number:04d}" for number in range(shape.models)]
    weights = list(accumulate((rank + 1) ** -shape.zipf for rank in range(shape.models)))
    now, shift_at = shape.starts_at, shape.starts_at + (shape.shift_seconds or math.inf)
    for _ in range(shape.requests):
        now += rng.expovariate(_rate(shape, now))
        while now >= shift_at:
            _shift(names, rng)
            shift_at += shape.shift_seconds
        model = names[bisect(weights, rng.random() * weights[-1], hi=len(names) - 1)]
        seconds = rng.expovariate(1 / shape.mean_seconds) if shape.mean_seconds else 0.0
        yield Request(now, model, seconds)


def _rate(shape: Shape, now: float) -> float:
    """Requests a second: fewest at midnight, and never so few that the trace stands still."""
    wave = 1 - shape.diurnal * math.cos(2 * math.pi * (now % _DAY) / _DAY)
    return max(0.01, wave) / shape.mean_gap_seconds


def _shift(names: list[str], rng: random.Random) -> None:
    for place in range(max(1, len(names) // 10)):
        other = rng.randrange(len(names))
        names[place], names[other] = names[other], names[place]
