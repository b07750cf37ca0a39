"""Is a node's agent there? Judged by the operator's own clock, never by the node's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from modelcache_operator.decide.world import AgentLeaseView, NodeName, Uid


class Liveness(StrEnum):
    """What the operator believes of one node's agent."""

    ALIVE = "Alive"
    # Late, but not late enough: keeps its copies and gets no new ones.
    SILENT = "Silent"
    # Its labels are removed, its copies do not count.
    LOST = "Lost"
    # No agent was ever seen there.
    ABSENT = "Absent"


@dataclass(frozen=True, slots=True)
class LivenessLimits:
    """Seconds without a renewal. Agents renew each 60 s: two missed ones are no accident."""

    silent_after_seconds: float = 150.0
    lost_after_seconds: float = 300.0
    # A longer gap between two lists means that the API server was away.
    outage_after_seconds: float = 30.0

    @classmethod
    def of(cls, lost_after_seconds: float, list_interval_seconds: float = 10.0) -> LivenessLimits:
        """The limits for a chosen time of loss; silence is half of it, at most 150 s.

        An outage must show before it makes anybody lost, and lists that are merely slow be none.
        """
        half = lost_after_seconds / 2
        outage = min(max(30.0, 3 * list_interval_seconds), half)
        return cls(min(150.0, half), lost_after_seconds, outage)


@dataclass(frozen=True, slots=True)
class Sighting:
    """When a Lease was last seen to change. `presumed_lost` holds until it changes again."""

    node_uid: Uid | None
    renewed_at: datetime | None
    changed_at: float
    presumed_lost: bool = False


Sightings = Mapping[NodeName, Sighting]


def note_leases(
    previous: Sightings,
    leases: Iterable[AgentLeaseView],
    *,
    known: Mapping[NodeName, bool],
    now: float,
) -> dict[NodeName, Sighting]:
    """The sightings after one list of the Leases.

    `known` are the nodes that have a CacheNode, with True where it already says NodeLost: a new
    leader must neither take a dead node for alive nor a living one for dead, so the first sight
    of a Lease counts as a renewal, except for those. Nodes whose Lease is missing keep ageing.
    """
    noted = {
        name: previous.get(name) or Sighting(None, None, now, presumed_lost=lost)
        for name, lost in known.items()
    }
    for lease in leases:
        before = previous.get(lease.node)
        if before is not None and before.node_uid == lease.node_uid:
            unchanged = before.renewed_at == lease.renewed_at
            noted[lease.node] = before if unchanged else _renewed(lease, now)
        else:
            is_lost = before is None and known.get(lease.node, False)
            noted[lease.node] = replace(_renewed(lease, now), presumed_lost=is_lost)
    return noted


def forgive(sightings: Sightings, seconds: float) -> dict[NodeName, Sighting]:
    """The sightings as if that time had not passed.

    While the API server is away nobody can renew anything, and nobody shall be called lost for it.
    """
    return {
        name: replace(sighting, changed_at=sighting.changed_at + seconds)
        for name, sighting in sightings.items()
    }


def judge(
    sighting: Sighting | None, node_uid: Uid | None, *, now: float, limits: LivenessLimits
) -> Liveness:
    """What to believe of the agent on the Node with that UID.

    A Lease that names another UID belongs to an earlier node of the same name.
    """
    if sighting is None:
        return Liveness.ABSENT
    if None not in {sighting.node_uid, node_uid} and sighting.node_uid != node_uid:
        return Liveness.ABSENT
    age = now - sighting.changed_at
    if sighting.presumed_lost or age >= limits.lost_after_seconds:
        return Liveness.LOST
    if age >= limits.silent_after_seconds:
        return Liveness.SILENT
    return Liveness.ALIVE


def _renewed(lease: AgentLeaseView, now: float) -> Sighting:
    return Sighting(lease.node_uid, lease.renewed_at, now)
