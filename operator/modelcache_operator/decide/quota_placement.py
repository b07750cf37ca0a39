"""Placement within a quota: who was there first stays, and what is new must be paid for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from modelcache_api.names import EntryState, Reason
from modelcache_operator.decide.canary import CanaryPlan
from modelcache_operator.decide.eligibility import Demand
from modelcache_operator.decide.node_book import NodeBook
from modelcache_operator.decide.placement import Books, PlacementPlan, Trouble, place
from modelcache_operator.decide.quota import Account
from modelcache_operator.decide.world import NodeName, Uid


def place_within(
    account: Account,
    cache: Uid,
    demand: Demand,
    assigned: Iterable[NodeName],
    books: Books,
    trouble: Trouble,
    *,
    is_still: bool = False,
) -> PlacementPlan:
    """As `place`, with no more copies than the namespace may pay for.

    Verified copies stay whatever the quota says, so that lowering one takes no bytes from pods;
    those that are not verified yet leave first.
    """
    assigned = tuple(assigned)
    plan = place(cache, demand, assigned, books, trouble, is_still=is_still)
    if account.refusal is None and account.allows(plan.live):
        return plan
    kept = sum(
        name in books and books[name].has_live_agent and books[name].has_verified(demand.version)
        for name in assigned
    )
    payable = 0 if account.refusal is not None else account.affordable()
    capped = plan
    # Where another ModelCache of the namespace has paid, a copy is free: it may be that placement
    # chooses these nodes, and it may be that it cannot.
    for free in (_count_paid(account), 0):
        copies = min(plan.wanted, max(kept, payable + free))
        fewer = demand.placement.model_copy(update={"copies": copies})
        limited = replace(demand, placement=fewer)
        left = Trouble(left=trouble.left)
        capped = place(cache, limited, assigned, books, left, is_still=is_still)
        if account.allows(capped.live):
            break
    shortage = account.refuse(plan.live, plan.wanted)
    return replace(capped, wanted=plan.wanted, shortage=shortage)


def _count_paid(account: Account) -> int:
    if account.refusal is not None:
        return 0
    return min((len(nodes) for nodes in account.paid.values()), default=0)


def limit_canary(
    account: Account,
    plan: CanaryPlan,
    present: frozenset[NodeName],
    version: Uid,
    books: Books,
) -> CanaryPlan:
    """The canary's nodes, or those alone that hold all its bytes, if the whole is not paid for.

    All or none, as with room: not a byte is read for a canary that cannot be whole, and what is on
    its way when a quota is lowered comes no further. What is whole stays, whatever the quota says.
    Nodes whose agent is lost are charged nothing, and nobody knows what they hold: they stay, too.
    """
    live = frozenset(name for name in plan.nodes if books[name].has_live_agent)
    if account.refusal is None and account.allows(live):
        return plan
    whole = frozenset(name for name in live & present if _is_whole(version, books[name]))
    kept = whole | (plan.nodes - live)
    if kept == plan.nodes:
        return plan
    shortage = account.refuse(live, len(live))
    ready = min(plan.copies.ready, len(whole))
    return CanaryPlan(kept, replace(plan.copies, ready=ready, shortage=shortage))


def _is_whole(version: Uid, book: NodeBook) -> bool:
    """It was whole: after a restart it may be hashed again, and what is damaged is repaired."""
    entry = book.reported.get(version)
    if entry is None:
        return False
    is_here = entry.state in {EntryState.CACHED, EntryState.VERIFYING}
    return is_here or entry.reason == Reason.DAMAGED
