"""Which nodes' agents are there, as one leader has seen it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_operator.decide.events import find_condition
from modelcache_operator.decide.liveness import (
    Liveness,
    LivenessLimits,
    Sighting,
    forgive,
    judge,
    note_leases,
)
from modelcache_operator.decide.world import AgentLeaseView, NodeName, Uid
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.world import ObservedWorld


class Agents:
    """Judges every node's agent after each list of the Leases. Pure memory; one event loop."""

    def __init__(self, world: ObservedWorld, clock: Clock, limits: LivenessLimits) -> None:
        self._world = world
        self._clock = clock
        self._limits = limits
        self._sightings: dict[NodeName, Sighting] = {}
        self._judged: dict[NodeName, Liveness] = {}
        self._listed_at: float | None = None

    @property
    def is_known(self) -> bool:
        """True once the Leases have been listed: before that, nobody may be called lost."""
        return self._listed_at is not None

    def reset(self) -> None:
        """Forget everything: a new term of leadership begins."""
        self._sightings, self._judged, self._listed_at = {}, {}, None

    def liveness(self, node: NodeName) -> Liveness:
        """What is believed of the node's agent."""
        return self._judged.get(node, Liveness.ABSENT)

    def is_heard(self, node: NodeName) -> bool:
        """True if copies on the node count, and its labels are its agent's."""
        return self.liveness(node) in {Liveness.ALIVE, Liveness.SILENT}

    def without_node(self) -> frozenset[NodeName]:
        """Nodes that have left a Lease and are gone themselves."""
        there = self._world.unreadable.nodes
        return frozenset(
            name for name in self._sightings if self._world.node(name) is None and name not in there
        )

    def forget(self, node: NodeName) -> None:
        """The node is gone, and so is its Lease."""
        self._sightings.pop(node, None)
        self._judged.pop(node, None)

    def note(self, leases: Iterable[AgentLeaseView]) -> frozenset[NodeName]:
        """Take in one list of the Leases; returns the nodes of which the belief has changed."""
        now = self._clock.monotonic()
        gap = now - self._listed_at if self._listed_at is not None else 0.0
        if gap > self._limits.outage_after_seconds:
            self._sightings = forgive(self._sightings, gap)
        self._listed_at = now
        known = {
            node.name: _is_said_lost(node.status.conditions) for node in self._world.cache_nodes()
        }
        known |= dict.fromkeys(self._world.unreadable.cache_nodes, False)
        noted = note_leases(self._sightings, leases, known=known, now=now)
        self._sightings = noted
        judged = {
            name: judge(sighting, self._uid_of(name), now=now, limits=self._limits)
            for name, sighting in noted.items()
        }
        changed = _difference(self._judged, judged)
        self._judged = judged
        return changed

    def note_one(self, lease: AgentLeaseView) -> bool:
        """Take in one Lease that was read by itself; True if the belief of its node has changed."""
        name, now = lease.node, self._clock.monotonic()
        node = self._world.cache_node(name)
        known = {name: _is_said_lost(node.status.conditions)} if node is not None else {}
        sighting = note_leases(self._sightings, (lease,), known=known, now=now)[name]
        before = self.liveness(name)
        self._sightings[name] = sighting
        self._judged[name] = judge(sighting, self._uid_of(name), now=now, limits=self._limits)
        return self._judged[name] is not before

    def _uid_of(self, name: NodeName) -> Uid | None:
        node = self._world.node(name)
        return node.uid if node else None


def _difference(
    before: Mapping[NodeName, Liveness], after: Mapping[NodeName, Liveness]
) -> frozenset[NodeName]:
    names = before.keys() | after.keys()
    return frozenset(
        name
        for name in names
        if before.get(name, Liveness.ABSENT) is not after.get(name, Liveness.ABSENT)
    )


def _is_said_lost(conditions: Iterable[ConditionStatus]) -> bool:
    ready = find_condition(tuple(conditions))
    return ready is not None and ready.status == "False"
