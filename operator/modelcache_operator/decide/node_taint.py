"""When the taint that keeps pods off a fresh node is lifted."""

from __future__ import annotations

from collections.abc import Iterable

from modelcache_api.names import TAINT_AGENT_NOT_READY
from modelcache_operator.decide.eligibility import Demand, refuse_match
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.node_book import NodeBook


def has_agent_taint(book: NodeBook) -> bool:
    """True while the node carries the taint, whatever its effect."""
    return any(taint.key == TAINT_AGENT_NOT_READY for taint in book.node.taints)


def may_lift_taint(
    book: NodeBook, everywhere: Iterable[Demand], waited_seconds: float, timeout_seconds: float
) -> bool:
    """True once the agent is alive and what belongs on every such node is verified here.

    `everywhere` are the ModelCaches with copies on all nodes. After the time-out a living agent
    is enough: one model that cannot be had must not cost a node. Without an agent nothing is
    lifted: the taint says that very thing.
    """
    if book.liveness is not Liveness.ALIVE:
        return False
    if waited_seconds >= timeout_seconds:
        return True
    if book.capacity_bytes is None:
        return False
    return all(
        book.has_verified(demand.version)
        for demand in everywhere
        if refuse_match(demand, book) is None
    )
