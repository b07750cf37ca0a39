"""Which part each version plays after the spec has changed. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from modelcache_operator.assignments import Assignment, Beside
from modelcache_operator.decide.world import NodeName, Uid

_NOWHERE: Final[frozenset[NodeName]] = frozenset()


def turn(before: Assignment, stable: Uid | None, canary: Uid | None) -> Assignment:
    """The versions in their new parts, each where it was.

    What is not named any more is held. A version that becomes stable keeps the nodes of its
    predecessor and its own: placement chooses among them, verified copies first. Without a stable
    version there is no canary, and no version is its own.
    """
    if stable in {None, canary}:
        canary = None
    named = {stable, canary}
    held = tuple(
        Beside(version, before.nodes_of(version))
        for version in sorted(before.versions - named)
        if before.nodes_of(version)
    )
    beside = None
    if canary is not None:
        was = before.canary if before.canary_version == canary else None
        beside = Beside(canary, before.nodes_of(canary), was.evictable if was else frozenset())
    turned = replace(before, canary=beside, held=held)
    if stable is None:
        return replace(turned, nodes=_NOWHERE, evictable=_NOWHERE, stuck_since={}, left=_NOWHERE)
    if stable != before.version:
        nodes = (before.nodes or before.everywhere) | before.nodes_of(stable)
        return replace(
            turned, version=stable, nodes=nodes, evictable=_NOWHERE, stuck_since={}, left=_NOWHERE
        )
    return replace(turned, nodes=before.nodes_of(stable))
