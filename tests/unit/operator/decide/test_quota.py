"""What a namespace is charged, what it has left, and what its administrator may write."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from builders import GIB, make_book, make_books, make_cache, make_demand
from modelcache_api.names import Priority, Reason, Tier
from modelcache_api.v1alpha1.model_cache_quota import (
    ModelCacheQuotaSpec,
    ModelCacheQuotaStatus,
    QuotaBytes,
)
from modelcache_operator.decide.eligibility import refuse_displacing, refuse_new
from modelcache_operator.decide.placement import Trouble
from modelcache_operator.decide.quota import (
    UNLIMITED,
    Holding,
    Item,
    Limits,
    join_limits,
    make_account,
    parse_default_quota,
    read_limits,
    sum_charges,
)
from modelcache_operator.decide.quota_placement import place_within
from modelcache_operator.decide.quota_status import make_quota_status
from modelcache_operator.decide.world import ModelCacheQuotaView, NodeName, ObjectKey, Uid

N1, N2, N3 = (NodeName(f"n{number}") for number in range(1, 4))


def holding(version: str, *nodes: NodeName, size: int = GIB, **fields) -> Holding:
    return Holding(Uid(version), size, frozenset(nodes), **fields)


@pytest.mark.parametrize(
    ("holdings", "charged"),
    [
        pytest.param([], (0, 0, 0, 0), id="nothing"),
        pytest.param([holding("a", N1, N2)], (2, 0, 0, 0), id="each copy"),
        pytest.param(
            [holding("a", N1), holding("a", N1, N2)], (2, 0, 0, 0), id="shared: once a node"
        ),
        pytest.param(
            [holding("a", N1), holding("b", N1)], (2, 0, 0, 0), id="two versions on a node"
        ),
        pytest.param(
            [holding("a", N1, N2, tier=Tier.HOST)],
            (2, 2, 0, 0),
            id="what is in memory is on disk too",
        ),
        pytest.param(
            [holding("a", N1, N2, tier=Tier.HOST, slower=frozenset({N1}))],
            (2, 1, 0, 0),
            id="nodes without the tier",
        ),
        pytest.param(
            [holding("a", N1, N2, tier=Tier.GPU, slower=frozenset({N1}))],
            (2, 1, 1, 0),
            id="what is on cards is in memory and on disk too",
        ),
        pytest.param([holding("a", N1, is_pinned=True)], (1, 0, 0, 1), id="pinned"),
    ],
)
def test_charges(holdings, charged):
    assert tuple(sum_charges(holdings)[item] // GIB for item in Item) == charged


def test_of_several_quotas_the_strictest_of_each_holds():
    one = read_limits(ModelCacheQuotaSpec(hard=QuotaBytes(disk="2Gi", pinned="5Gi")), "one")
    two = read_limits(
        ModelCacheQuotaSpec(hard=QuotaBytes(disk="3Gi", host="1Gi"), max_priority=Priority.HIGH),
        "two",
    )
    both = join_limits([one, two])
    assert both.hard == {Item.DISK: 2 * GIB, Item.HOST: GIB, Item.PINNED: 0}
    assert (both.max_priority, both.all_nodes) == (Priority.NORMAL, False)
    assert both.source == "one and two"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        pytest.param([], "it is no quota", id="a list"),
        pytest.param({"hrad": {}}, "a quota has no hrad", id="a misspelt field"),
        pytest.param({"hard": {"disc": "1Gi"}}, "a quota has no disc", id="a misspelt item"),
        pytest.param({"hard": 5}, "hard: write disk, host, gpu, pinned with", id="a number"),
        pytest.param({"hard": {"disk": ["1Gi"]}}, "is not a quantity", id="a list of amounts"),
        pytest.param({1: 2, "hrad": {}}, "a quota has no 1", id="fields of several kinds"),
        pytest.param({"hard": {"disk": "lots"}}, "'lots' is not a quantity", id="no quantity"),
        pytest.param({"maxPriority": "Urgent"}, "maxPriority: Input should be", id="no priority"),
    ],
)
def test_a_wrong_default_quota_is_said_in_one_line(document, says):
    with pytest.raises(ValueError, match=says):
        parse_default_quota(document)


def test_the_charts_default_grants_bytes_and_nothing_that_needs_a_quota():
    document = {"hard": {"disk": "", "host": "", "gpu": "", "pinned": "0"}, "maxPriority": "Normal"}
    limits = parse_default_quota(document)
    assert limits.hard == {Item.PINNED: 0}
    assert (limits.max_priority, limits.all_nodes) == (Priority.NORMAL, False)
    assert parse_default_quota(None) == UNLIMITED


def test_a_full_quota_names_the_item_that_lacks_most():
    limits = Limits({Item.DISK: 10 * GIB, Item.HOST: 3 * GIB})
    wish = holding("a", tier=Tier.HOST)
    account = make_account(limits, wish, [holding("b", N1, N2, tier=Tier.HOST)], make_cache().spec)
    assert account.affordable() == 1
    told = account.refuse(frozenset({N1, N2, N3}), 3)
    assert told.reason is Reason.QUOTA_EXCEEDED
    assert "grants 3Gi of host, and 2Gi are used" in told.message


def test_the_memory_of_cards_is_granted_by_its_own_item():
    limits = read_limits(ModelCacheQuotaSpec(hard=QuotaBytes(gpu="2Gi")), "one")
    others = [holding("b", N1, tier=Tier.GPU), holding("c", N2, tier=Tier.HOST)]
    spec = make_cache().spec
    account = make_account(limits, holding("a", tier=Tier.GPU), others, spec)
    assert account.affordable() == 1
    assert not account.allows(frozenset({N2, N3}))
    assert "grants 2Gi of gpu, and 1Gi are used" in account.refuse(frozenset({N2, N3}), 2).message
    in_host = make_account(limits, holding("a", tier=Tier.HOST), others, spec)
    assert in_host.allows(frozenset({N1, N2, N3})), "who wants no card pays for none"


def test_the_status_tells_what_is_used_of_each_item():
    spec = ModelCacheQuotaSpec(hard=QuotaBytes(host="4Gi", gpu="2Gi"))
    quota = ModelCacheQuotaView(
        ObjectKey("search", "q"), Uid("q"), 1, spec, ModelCacheQuotaStatus()
    )
    charged = sum_charges([holding("a", N1, tier=Tier.GPU), holding("b", N2, tier=Tier.HOST)])
    status = make_quota_status(quota, read_limits(spec, "q"), charged, (), datetime.now(UTC))
    used = status.used
    assert (used.disk_bytes, used.host_bytes, used.gpu_bytes) == (2 * GIB, 2 * GIB, GIB)
    assert (status.disk, status.host, status.gpu) == ("2Gi/-", "2Gi/4Gi", "1Gi/2Gi")
    assert "1Gi/2Gi of gpu" in status.conditions[0].message


def test_a_copy_is_free_where_the_namespace_has_paid_for_the_version():
    limits = Limits({Item.DISK: 2 * GIB})
    account = make_account(limits, holding("v1"), [holding("v1", N1)], make_cache().spec)
    books = make_books(make_book("n1", sizes={"v1": GIB}), make_book("n2"), make_book("n3"))
    plan = place_within(account, Uid("c"), make_demand(copies=3), (), books, Trouble())
    assert len(plan.nodes) == 2
    assert N1 in plan.nodes
    assert (plan.wanted, plan.shortage.reason) == (3, Reason.QUOTA_EXCEEDED)
    elsewhere = make_books(make_book("n2"), make_book("n3"))
    plan = place_within(account, Uid("c"), make_demand(copies=2), (), elsewhere, Trouble())
    assert len(plan.nodes) == 1, "what is paid for elsewhere pays for nothing here"


@pytest.mark.parametrize(
    ("priority", "may_displace"), [(Priority.LOW, False), (Priority.NORMAL, True)]
)
def test_a_copy_displaces_none_of_a_higher_priority(priority, may_displace):
    book = make_book("n1", capacity=GIB, sizes={"other": GIB})
    book = type(book)(
        **{name: getattr(book, name) for name in book.__slots__}
        | {"evictable": frozenset({Uid("other")})}
    )
    demand = make_demand(version="new")
    demand = type(demand)(demand.version, GIB, demand.placement, demand.tier, priority)
    assert refuse_new(demand, book).reason is Reason.INSUFFICIENT_SPACE
    assert (refuse_displacing(demand, book) is None) == may_displace
