"""From requests to what a node sees: pods that attach a model, and go when it was idle."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from modelcache_simulator.trace import Request


class Attach(NamedTuple):
    """A pod begins to use a model that no pod uses."""

    at: float
    model: str


class Release(NamedTuple):
    """The last pod of a model is gone."""

    at: float
    model: str


Event = Attach | Release


def follow_sessions(requests: Iterable[Request], idle_seconds: float) -> Iterator[Event]:
    """An attach for each request after `idle_seconds` without one, a release at their end.

    In order of time; memory grows with the models that are attached at once.
    """
    busy_until: dict[str, float] = {}
    due: list[tuple[float, str]] = []
    for request in requests:
        yield from _release(due, busy_until, idle_seconds, request.at)
        end = request.at + request.seconds
        if request.model in busy_until:
            busy_until[request.model] = max(busy_until[request.model], end)
            continue
        busy_until[request.model] = end
        heapq.heappush(due, (end + idle_seconds, request.model))
        yield Attach(request.at, request.model)
    yield from _release(due, busy_until, idle_seconds, float("inf"))


def _release(
    due: list[tuple[float, str]], busy_until: dict[str, float], idle_seconds: float, before: float
) -> Iterator[Release]:
    while due and due[0][0] < before:
        at, model = heapq.heappop(due)
        end = busy_until[model] + idle_seconds
        if end > at:
            heapq.heappush(due, (end, model))
            continue
        del busy_until[model]
        yield Release(at, model)
