"""Quotas hold whatever is asked for, in whatever order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from builders import GIB, make_book, make_books, make_cache, make_demand, make_entry
from modelcache_api.names import EntryState, Tier
from modelcache_operator.decide.placement import Trouble
from modelcache_operator.decide.quota import Holding, Item, Limits, make_account, sum_charges
from modelcache_operator.decide.quota_placement import place_within
from modelcache_operator.decide.world import NodeName, Uid

NODES = [NodeName(f"n{number}") for number in range(5)]
nodes = st.frozensets(st.sampled_from(NODES))
holdings = st.lists(
    st.builds(
        Holding,
        version=st.sampled_from([Uid("a"), Uid("b"), Uid("c")]),
        size_bytes=st.just(GIB),
        nodes=nodes,
        tier=st.sampled_from(list(Tier)),
        is_pinned=st.booleans(),
    ),
    max_size=6,
)
limits = st.dictionaries(st.sampled_from(list(Item)), st.integers(0, 12).map(lambda n: n * GIB))


@given(holdings, holdings)
def test_a_charge_never_falls_by_what_is_added_and_sharing_never_costs_more(one, more):
    alone, both, other = sum_charges(one), sum_charges([*one, *more]), sum_charges(more)
    for item in Item:
        assert alone[item] <= both[item] <= alone[item] + other[item]
    assert sum_charges([*one, *one]) == alone
    assert all(both[Item.DISK] >= both[item] for item in Item), "all of it is on a disk"


@given(holdings, limits, nodes, nodes, st.one_of(st.integers(1, 5), st.just("All")), st.booleans())
def test_what_is_new_is_paid_for_and_what_is_verified_stays(
    others, hard, assigned, verified, copies, pinned
):
    """Placed anew: within the quota, or no more than what was verified before."""
    books = make_books(
        *(
            make_book(
                name,
                sizes={"a": GIB} if name in assigned else {},
                entries=[make_entry("a", EntryState.CACHED)] if name in verified else [],
            )
            for name in NODES
        )
    )
    wish = Holding(Uid("a"), GIB, frozenset(), Tier.DISK, is_pinned=pinned)
    account = make_account(Limits(hard), wish, others, make_cache().spec)
    demand = make_demand(version="a", copies=copies)
    plan = place_within(account, Uid("c"), demand, assigned, books, Trouble())
    charged = sum_charges([*others, replace(wish, nodes=plan.nodes)])
    before = sum_charges(others)
    for item, most in hard.items():
        grew = charged[item] > before[item]
        assert not grew or charged[item] <= most or len(plan.nodes) <= len(assigned & verified)
    kept = len(assigned & verified)
    wanted = len(NODES) if copies == "All" else copies
    assert len(plan.nodes & verified & assigned) == min(kept, wanted)
    assert len(plan.nodes) == wanted or plan.shortage is not None
    again = place_within(account, Uid("c"), demand, plan.nodes, books, Trouble())
    assert again.nodes == plan.nodes, "placed again, nothing moves"
