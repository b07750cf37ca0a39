"""The JSON Patch that changes weights of an HTTPRoute and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modelcache_operator.decide.route import RouteView, WeightChange

Operation = dict[str, Any]


def build_weight_patch(route: RouteView, changes: Iterable[WeightChange]) -> list[Operation]:
    """It applies only to the very route that was read, with these entries still where they were.

    Each entry is tested whole: one of the same name with another port or filter is another one.
    """
    tests: list[Operation] = [{"op": "test", "path": "/metadata/uid", "value": route.uid}]
    writes: list[Operation] = []
    for change in changes:
        backend = change.backend
        path = f"/spec/rules/{backend.rule}/backendRefs/{backend.index}"
        tests.append({"op": "test", "path": path, "value": dict(backend.entry)})
        if change.weight != backend.weight:
            op = "replace" if "weight" in backend.entry else "add"
            writes.append({"op": op, "path": f"{path}/weight", "value": change.weight})
    return [*tests, *writes]
