"""The conditions of a CacheNode: what its own agent cannot say, or would not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from modelcache_api.conditions import Verdict, merge_conditions
from modelcache_api.names import NODE_LABEL_PREFIX, Condition, Reason
from modelcache_api.v1alpha1.base import ConditionStatus
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.world import CacheNodeView, NodeName, NodeView

OWNED: Final = frozenset(
    {
        Condition.READY,
        Condition.DISK_PRESSURE,
        Condition.HOST_TIER_UNFIT,
        Condition.PEER_SUSPECTED,
    }
)
_MOST_NAMED: Final = 3


def is_lost(cache_node: CacheNodeView) -> bool:
    """True if the agent is said to be silent for too long."""
    ready = (c.status for c in cache_node.status.conditions if c.type == Condition.READY)
    return next(ready, "Unknown") == "False"


def find_short_of_room(cache_node: CacheNodeView | None) -> frozenset[str]:
    """What its agent has no room for: UIDs of versions, and names of tiers that are nearly full."""
    if cache_node is None:
        return frozenset()
    status, lacking = cache_node.status, Reason.INSUFFICIENT_SPACE
    entries = (entry.uid for entry in status.entries if entry.reason == lacking)
    tiers = (tier.name for tier in status.tiers if tier.pressure is not None)
    return frozenset((*entries, *tiers))


def make_node_conditions(
    cache_node: CacheNodeView,
    liveness: Liveness,
    now: datetime,
    accusers: Iterable[NodeName] = (),
    *,
    kubelet_pressed: bool = False,
) -> tuple[ConditionStatus, ...]:
    """The conditions that the operator owns. A silent agent is still believed to be alive.

    `accusers` are the nodes that say that this one served them wrong bytes; `kubelet_pressed`: its
    Node has the condition DiskPressure.
    """
    is_lost = liveness in {Liveness.LOST, Liveness.ABSENT}
    if is_lost:
        message = "the agent has been silent for too long: check the node and the agent's pod"
        verdict = Verdict(Condition.READY, not is_lost, Reason.NODE_LOST, message)
    elif damaged := _describe_damaged(cache_node):
        verdict = Verdict(Condition.READY, not is_lost, Reason.DAMAGED, damaged)
    else:
        verdict = Verdict(
            Condition.READY, not is_lost, Reason.AGENT_ALIVE, "the agent renews its Lease"
        )
    verdicts = [verdict]
    if pressed := _describe_pressure(cache_node, kubelet_pressed=kubelet_pressed):
        kind, reason = Condition.DISK_PRESSURE, Reason.DISK_PRESSURE
        verdicts.append(Verdict(kind, status=True, reason=reason, message=pressed))
    if unfit := cache_node.status.host_unfit:
        kind, reason = Condition.HOST_TIER_UNFIT, Reason.HOST_TIER_UNFIT
        verdicts.append(Verdict(kind, status=True, reason=reason, message=unfit))
    if names := sorted(set(accusers) - {cache_node.name}):
        message = f"served wrong bytes to {_enumerate(names)}: check the node's disk and memory"
        kind, reason = Condition.PEER_SUSPECTED, Reason.PEER_SUSPECTED
        verdicts.append(Verdict(kind, status=True, reason=reason, message=message))
    return merge_conditions(cache_node.status.conditions, verdicts, generation=None, now=now)


def list_damaged(cache_node: CacheNodeView) -> tuple[str, ...]:
    """Uids of ModelVersions whose files the agent found damaged and has not replaced yet."""
    entries = cache_node.status.entries
    return tuple(sorted(entry.uid for entry in entries if entry.reason == Reason.DAMAGED))


def _describe_damaged(cache_node: CacheNodeView) -> str:
    """Which models' files the agent found damaged; the same however far their repair is."""
    damaged, entries = list_damaged(cache_node), cache_node.status.entries
    if not damaged:
        return ""
    return (
        f"files of {len(damaged)} of {len(entries)} models were damaged on the node's disk, first "
        f"those of ModelVersion uid {damaged[0]}: see its entry in status, and check the disk"
    )


def _describe_pressure(cache_node: CacheNodeView, *, kubelet_pressed: bool) -> str:
    """The agent's own words first: they have the arithmetic."""
    told = next((tier.pressure for tier in cache_node.status.tiers if tier.pressure), "")
    if told or not kubelet_pressed:
        return told
    return (
        "the kubelet says DiskPressure of the Node: no new copies come here until it is over; free "
        "space on the node's disk"
    )


def labels_to_remove(node: NodeView, liveness: Liveness) -> tuple[str, ...]:
    """Our labels on a node that nobody answers for. The operator never adds one."""
    if liveness in {Liveness.ALIVE, Liveness.SILENT}:
        return ()
    return tuple(sorted(key for key in node.labels if key.startswith(NODE_LABEL_PREFIX)))


def _enumerate(names: Sequence[NodeName]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    left = len(names) - _MOST_NAMED
    return shown if left <= 0 else f"{shown} and {left} more"
