"""Which part each version plays after the spec has changed. Pure."""

from __future__ import annotations

from modelcache_operator.assignments import Assignment, Beside
from modelcache_operator.decide.world import Uid


def turn(before: Assignment, stable: Uid | None, canary: Uid | None) -> Assignment:
    """The versions in their new parts, each where it was.

    What is not named any more is held. A version that becomes stable keeps the nodes of its
    predecessor and its own: placement chooses among them, verified copies first. Without a stable
    version there is no canary either.
    """
    if stable is None:
        canary = None
    named = {stable, canary}
    held = tuple(
        Beside(version, before.nodes_of(version))
        for version in sorted(before.versions - named)
        if before.nodes_of(version)
    )
    beside = None if canary is None else Beside(canary, before.nodes_of(canary))
    if stable is None:
        return Assignment(before.version, canary=None, held=held)
    if stable != before.version:
        nodes = (before.nodes or before.everywhere) | before.nodes_of(stable)
        return Assignment(stable, nodes, canary=beside, held=held)
    return Assignment(
        stable,
        before.nodes_of(stable),
        before.evictable,
        before.stuck_since,
        before.left,
        canary=beside,
        held=held,
    )
