from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    GIB,
    make_book,
    make_books,
    make_cache_node,
    make_demand,
    make_entry,
    make_entry_spec,
    make_node,
)
from modelcache_api.names import EntryState, Reason
from modelcache_api.v1alpha1.model_cache import Toleration
from modelcache_operator.decide.eligibility import refuse_to_keep
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.placement import place
from modelcache_operator.decide.world import Uid

CACHE = Uid("cache-1")


def zoned(name: str, zone: str, **fields):
    return make_book(
        name, node=make_node(name, labels={"topology.kubernetes.io/zone": zone}), **fields
    )


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def test_new_copies_go_to_as_many_nodes_as_the_spec_asks_for():
    books = make_books(*(make_book(name) for name in names(5)))
    plan = place(CACHE, make_demand(copies=3), (), books)
    assert len(plan.nodes) == len(plan.live) == plan.wanted == 3
    assert plan.shortage is None


def test_the_choice_is_the_same_in_every_process_and_differs_between_caches():
    books = make_books(*(make_book(name) for name in names(20)))
    first = place(Uid("a"), make_demand(copies=2), (), books)
    assert place(Uid("a"), make_demand(copies=2), (), dict(reversed(books.items()))) == first
    others = {place(Uid(f"{n}"), make_demand(copies=2), (), books).nodes for n in range(10)}
    assert len(others) > 5


def test_what_is_placed_stays_although_a_better_node_appears():
    books = make_books(
        make_book("n1", sizes={"other": 90 * GIB, "v1": GIB}), *(make_book(n) for n in ("n2", "n3"))
    )
    assert place(CACHE, make_demand(copies=1), ["n1"], books).nodes == {"n1"}


def test_copies_are_spread_over_zones_before_anything_is_doubled():
    books = make_books(
        *(zoned(f"a{n}", "a") for n in range(4)),
        zoned("b1", "b", sizes={"other": 50 * GIB}),
        zoned("c1", "c", sizes={"other": 80 * GIB}),
    )
    plan = place(CACHE, make_demand(copies=3), (), books)
    assert {"b1", "c1"} < plan.nodes


def test_a_zone_with_a_lost_copy_counts_as_empty():
    books = make_books(
        zoned("a1", "a", liveness=Liveness.LOST),
        zoned("a2", "a"),
        zoned("b1", "b"),
        zoned("b2", "b"),
    )
    plan = place(CACHE, make_demand(copies=2), ["a1", "b1"], books)
    assert plan.live == {"a2", "b1"}


def test_the_least_booked_node_is_preferred():
    books = make_books(*(make_book(f"n{n}", sizes={"other": n * 10 * GIB}) for n in range(1, 5)))
    assert place(CACHE, make_demand(copies=2), (), books).nodes == {"n1", "n2"}


def test_a_node_that_holds_the_version_already_is_preferred_over_an_emptier_one():
    books = make_books(
        make_book("n1"), make_book("n2", sizes={"v1": GIB, "other": 50 * GIB}), make_book("n3")
    )
    assert place(CACHE, make_demand(copies=1), (), books).nodes == {"n2"}


@pytest.mark.parametrize(
    ("book", "phrase"),
    [
        pytest.param(
            make_book("n9", node=make_node("n9", taints=["gpu=yes:NoSchedule"])),
            "untolerated taint gpu=yes:NoSchedule",
            id="an untolerated NoSchedule taint",
        ),
        pytest.param(
            make_book("n9", node=make_node("n9", taints=["gpu:NoExecute"])),
            "untolerated taint gpu:NoExecute",
            id="an untolerated NoExecute taint",
        ),
        pytest.param(
            make_book(
                "n9", node=make_node("n9", taints=["node.kubernetes.io/not-ready:NoExecute"])
            ),
            "not-ready",
            id="a node that Kubernetes says is away",
        ),
        pytest.param(
            make_book("n9", node=make_node("n9", is_unschedulable=True)),
            "cordoned",
            id="a cordoned node",
        ),
        pytest.param(
            make_book("n9", node=make_node("n9", is_ready=False)), "not Ready", id="not Ready"
        ),
    ],
)
def test_nodes_that_pods_cannot_use_get_no_new_copy_and_the_reason_says_why(book, phrase):
    plan = place(CACHE, make_demand(copies=1), (), make_books(book))
    assert not plan.nodes
    assert plan.shortage.reason is Reason.NO_ELIGIBLE_NODE
    assert phrase in plan.shortage.message


@pytest.mark.parametrize(
    "book",
    [
        pytest.param(
            make_book("n9", node=make_node("n9", has_disk_pressure=True)), id="the kubelet's"
        ),
        pytest.param(replace(make_book("n9"), pressure="92 % are used"), id="the agent's"),
    ],
)
def test_C54_a_node_under_disk_pressure_gets_nothing_new_and_keeps_what_it_has(book):
    plan = place(CACHE, make_demand(copies=1), (), make_books(book))
    assert not plan.nodes
    assert plan.shortage.reason is Reason.DISK_PRESSURE
    assert "1 under disk pressure" in plan.shortage.message
    assert "copies follow when the pressure is over" in plan.shortage.message
    assert place(CACHE, make_demand(copies=1), ["n9"], make_books(book)).nodes == {"n9"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        pytest.param(Toleration(operator="Exists"), True, id="a toleration of everything"),
        pytest.param(Toleration(key="gpu", operator="Exists"), True, id="the key exists"),
        pytest.param(Toleration(key="gpu", value="yes"), True, id="the value is equal"),
        pytest.param(Toleration(key="gpu", value="no"), False, id="another value"),
        pytest.param(Toleration(key="cpu", operator="Exists"), False, id="another key"),
        pytest.param(
            Toleration(key="gpu", operator="Exists", effect="NoExecute"), False, id="another effect"
        ),
        pytest.param(
            Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True, id="that effect"
        ),
    ],
)
def test_tolerations_have_the_meaning_that_pods_give_them(toleration, fits):
    book = make_book("n1", node=make_node("n1", taints=["gpu=yes:NoSchedule"]))
    plan = place(CACHE, make_demand(copies=1, tolerations=(toleration,)), (), make_books(book))
    assert bool(plan.nodes) is fits


def test_a_cordon_can_be_tolerated_and_soft_taints_keep_nothing_away():
    cordoned = make_book("n1", node=make_node("n1", is_unschedulable=True))
    toleration = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists")
    plan = place(CACHE, make_demand(copies=1, tolerations=(toleration,)), (), make_books(cordoned))
    assert plan.nodes == {"n1"}
    soft = make_book("n1", node=make_node("n1", taints=["x:PreferNoSchedule"]))
    assert place(CACHE, make_demand(copies=1), (), make_books(soft)).nodes == {"n1"}


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(make_node("n1", is_unschedulable=True), id="a cordon"),
        pytest.param(make_node("n1", taints=["x:NoSchedule"]), id="a NoSchedule taint"),
        pytest.param(make_node("n1", is_ready=False), id="a kubelet that is away"),
        pytest.param(
            make_node("n1", taints=["node.kubernetes.io/unreachable:NoExecute"]),
            id="the taint of a kubelet that is away",
        ),
    ],
)
def test_no_copy_is_taken_away_by(node):
    books = make_books(make_book("n1", node=node), make_book("n2"))
    assert place(CACHE, make_demand(copies=1), ["n1"], books).nodes == {"n1"}


@pytest.mark.parametrize(
    ("book", "reason"),
    [
        pytest.param(
            make_book("n1", node=make_node("n1", taints=["x:NoExecute"])),
            Reason.NO_ELIGIBLE_NODE,
            id="a NoExecute taint",
        ),
        pytest.param(
            make_book("n1", node=make_node("n1", labels={"pool": "cpu"})),
            Reason.NO_ELIGIBLE_NODE,
            id="a label that no longer matches",
        ),
        pytest.param(
            make_book("n1", node=make_node("n1", labels={"pool": "gpu"}), capacity=GIB // 2),
            Reason.NEVER_FITS,
            id="a disk that became too small for it",
        ),
    ],
)
def test_a_copy_moves_away_because_of(book, reason):
    other = make_book("n2", node=make_node("n2", labels={"pool": "gpu"}))
    demand = make_demand(copies=1, node_selector={"pool": "gpu"})
    plan = place(CACHE, demand, ["n1"], make_books(book, other))
    assert plan.nodes == {"n2"}
    assert refuse_to_keep(demand, book).reason is reason


def test_C36_a_node_that_is_gone_is_replaced_and_leaves_nothing_behind():
    plan = place(CACHE, make_demand(copies=1), ["gone"], make_books(make_book("n2")))
    assert plan.nodes == plan.live == {"n2"}
    assert plan.shortage is None


def test_a_lost_node_keeps_its_entry_is_replaced_and_does_not_count():
    books = make_books(make_book("n1", liveness=Liveness.LOST), make_book("n2"), make_book("n3"))
    plan = place(CACHE, make_demand(copies=1), ["n1"], books)
    assert "n1" in plan.nodes
    assert len(plan.live) == 1
    assert "n1" not in plan.live


def test_a_node_that_comes_back_with_its_bytes_wins_over_its_unfinished_replacement():
    books = make_books(
        make_book("n1", entries=[make_entry()]),
        make_book("n2", entries=[make_entry(state=EntryState.DOWNLOADING, progress_percent=90)]),
    )
    assert place(CACHE, make_demand(copies=1), ["n1", "n2"], books).nodes == {"n1"}


def test_of_two_unfinished_copies_too_many_the_further_one_stays():
    books = make_books(
        make_book("n1", entries=[make_entry(state=EntryState.DOWNLOADING, progress_percent=10)]),
        make_book("n2", entries=[make_entry(state=EntryState.DOWNLOADING, progress_percent=90)]),
        make_book("n3"),
    )
    assert place(CACHE, make_demand(copies=1), ["n1", "n2", "n3"], books).nodes == {"n2"}


def test_lost_nodes_are_never_trimmed():
    books = make_books(
        *(make_book(name) for name in ("n1", "n2")), make_book("n3", liveness=Liveness.LOST)
    )
    plan = place(CACHE, make_demand(copies=1), ["n1", "n2", "n3"], books)
    assert "n3" in plan.nodes
    assert len(plan.nodes) == 2


def test_a_silent_agent_keeps_its_copy_and_gets_no_new_one():
    books = make_books(make_book("n1", liveness=Liveness.SILENT), make_book("n2"))
    assert place(CACHE, make_demand(copies=1), ["n1"], books).live == {"n1"}
    assert place(CACHE, make_demand(copies=1), (), books).nodes == {"n2"}


def test_an_evicted_copy_is_not_placed_elsewhere():
    books = make_books(
        make_book("n1", entries=[make_entry(state=EntryState.EVICTED)], sizes={"v1": GIB}),
        make_book("n2"),
    )
    assert place(CACHE, make_demand(copies=1), ["n1"], books).nodes == {"n1"}


@pytest.mark.parametrize(
    ("books", "reason"),
    [
        pytest.param([], Reason.NO_ELIGIBLE_NODE, id="there is no node at all"),
        pytest.param(
            [make_book("n1", liveness=Liveness.ABSENT)],
            Reason.AGENTS_NOT_RUNNING,
            id="no agent runs anywhere",
        ),
        pytest.param(
            [
                make_book("n1", liveness=Liveness.ABSENT),
                make_book("n2", node=make_node("n2", labels={"pool": "cpu"})),
            ],
            Reason.NO_AGENT,
            id="agents run, but not where the placement points to",
        ),
        pytest.param(
            [
                make_book("n1", liveness=Liveness.LOST),
                make_book("n2", node=make_node("n2", labels={"pool": "cpu"})),
            ],
            Reason.NODE_LOST,
            id="the agents of the eligible nodes are silent",
        ),
        pytest.param(
            [make_book("n1", capacity=None)], Reason.WAITING, id="an agent has not reported yet"
        ),
        pytest.param(
            [make_book("n1", capacity=GIB // 2)], Reason.NEVER_FITS, id="every disk is too small"
        ),
        pytest.param(
            [make_book("n1", capacity=2 * GIB, sizes={"other": int(1.5 * GIB)})],
            Reason.INSUFFICIENT_SPACE,
            id="the room is promised to others",
        ),
        pytest.param(
            [make_book("n1", capacity=2 * GIB, pending_release=int(1.5 * GIB))],
            Reason.INSUFFICIENT_SPACE,
            id="readers still hold what was given up",
        ),
        pytest.param(
            [make_book("n1", sizes={f"o{n}": 1 for n in range(64)})],
            Reason.TOO_MANY_MODELS,
            id="the node carries as many labels as it may",
        ),
        pytest.param(
            [make_book("n1", capacity=GIB // 2), make_book("n2", liveness=Liveness.ABSENT)],
            Reason.NEVER_FITS,
            id="of two causes the nearer to a solution",
        ),
    ],
)
def test_a_shortage_has_one_reason_when(books, reason):
    for book in books:
        if "pool" not in book.node.labels:
            book.node.labels["pool"] = "gpu"
    demand = make_demand(copies=1, node_selector={"pool": "gpu"})
    plan = place(CACHE, demand, (), make_books(*books))
    assert plan.shortage.reason is reason
    assert not plan.nodes


def test_the_shortage_gives_needed_free_and_booked_bytes_and_the_cure():
    book = make_book("n1", capacity=10 * GIB, sizes={"other": 8 * GIB})
    message = place(CACHE, make_demand(4 * GIB, copies=1), (), make_books(book)).shortage.message
    assert "0 of 1 copies have a node; other nodes: 1 without room" in message
    assert "needed 4Gi; the roomiest node n1 has 2Gi free, 8Gi booked of 10Gi" in message
    assert "free space" in message


def test_a_message_counts_causes_and_stays_short_however_many_there_are():
    books = make_books(
        *(
            make_book(f"n{n}", node=make_node(f"n{n}", taints=[f"t{n}:NoSchedule"]))
            for n in range(9)
        )
    )
    message = place(CACHE, make_demand(copies=1), (), books).shortage.message
    assert "5 for other causes" in message
    assert len(message) < 512


def test_asking_for_more_copies_than_there_are_nodes_places_what_can_be_and_says_so():
    books = make_books(make_book("n1"), make_book("n2"))
    plan = place(CACHE, make_demand(copies=3), (), books)
    assert plan.nodes == {"n1", "n2"}
    assert plan.shortage.message.startswith("2 of 3 copies have a node; there are no other nodes")


def test_evicted_bytes_are_free_for_others():
    book = make_book(
        "n1",
        capacity=2 * GIB,
        sizes={"other": 2 * GIB},
        entries=[make_entry("other", EntryState.EVICTED)],
    )
    assert place(CACHE, make_demand(2 * GIB, copies=1), (), make_books(book)).nodes == {"n1"}


def test_a_newcomer_may_displace_copies_that_may_be_evicted_but_prefers_free_room():
    full = make_book(
        "n1",
        capacity=2 * GIB,
        sizes={"other": 2 * GIB},
        wanted=[make_entry_spec("other", evictable=True)],
    )
    assert place(CACHE, make_demand(copies=1), (), make_books(full)).nodes == {"n1"}
    free = make_book("n2", sizes={"other": 50 * GIB})
    assert place(CACHE, make_demand(copies=1), (), make_books(full, free)).nodes == {"n2"}


def test_protected_copies_are_displaced_by_nobody():
    full = make_book("n1", capacity=2 * GIB, sizes={"o": 2 * GIB}, wanted=[make_entry_spec("o")])
    plan = place(CACHE, make_demand(copies=1), (), make_books(full))
    assert plan.shortage.reason is Reason.INSUFFICIENT_SPACE


class TestAllCopies:
    def test_every_eligible_node_with_an_agent_gets_one(self):
        books = make_books(
            *(make_book(name) for name in names(4)),
            make_book("tainted", node=make_node("tainted", taints=["x:NoSchedule"])),
            make_book("absent", liveness=Liveness.ABSENT),
        )
        plan = place(CACHE, make_demand(copies="All"), (), books)
        assert plan.nodes == set(names(4))
        assert plan.wanted == 4
        assert plan.shortage is None

    def test_a_new_node_gets_its_copy(self):
        books = make_books(make_book("n1"), make_book("n2"))
        plan = place(CACHE, make_demand(copies="All"), ["n1"], books)
        assert plan.nodes == {"n1", "n2"}

    def test_a_node_without_room_is_a_shortage(self):
        books = make_books(make_book("n1"), make_book("n2", capacity=GIB // 2))
        plan = place(CACHE, make_demand(copies="All"), (), books)
        assert (plan.nodes, plan.wanted) == ({"n1"}, 2)
        assert plan.shortage.reason is Reason.NEVER_FITS

    def test_no_eligible_node_at_all_is_a_shortage(self):
        plan = place(CACHE, make_demand(copies="All"), (), {})
        assert plan.shortage.reason is Reason.NO_ELIGIBLE_NODE
        assert plan.shortage.message.startswith("0 of All copies have a node")

    def test_a_cordoned_node_keeps_the_copy_that_it_has(self):
        books = make_books(
            make_book("n1", node=make_node("n1", is_unschedulable=True)), make_book("n2")
        )
        plan = place(CACHE, make_demand(copies="All"), ["n1"], books)
        assert plan.nodes == {"n1", "n2"}
        assert plan.wanted == 2


def test_the_report_of_a_rebuilt_node_of_the_same_name_is_not_believed():
    book = make_book("n1", cache_node=make_cache_node("n1", node_uid="older"))
    assert book.capacity_bytes is None
    assert place(CACHE, make_demand(copies=1), (), make_books(book)).shortage.reason is (
        Reason.WAITING
    )


@pytest.mark.parametrize("copies", [3, "All"])
def test_what_has_all_its_copies_asks_no_other_node(copies, monkeypatch):
    there = [make_book(name, entries=[make_entry()], sizes={"v1": GIB}) for name in names(3)]
    others = [make_book(f"o{n}", node=make_node(f"o{n}", labels={"pool": "b"})) for n in range(3)]
    books = make_books(*(there if copies == "All" else there + others))
    monkeypatch.setattr("modelcache_operator.decide.placement.refuse_new", _must_not_be_asked)
    plan = place(CACHE, make_demand(copies=copies), names(3), books)
    assert (plan.live, plan.shortage) == (frozenset(names(3)), None)


def test_on_all_nodes_of_a_pool_no_node_of_another_is_asked_for_room(monkeypatch):
    there = [make_book(name, entries=[make_entry()], sizes={"v1": GIB}) for name in names(3)]
    pool = [replace(book, node=replace(book.node, labels={"pool": "a"})) for book in there]
    books = make_books(*pool, make_book("other"))
    monkeypatch.setattr("modelcache_operator.decide.placement.refuse_new", _must_not_be_asked)
    demand = make_demand(copies="All", node_selector={"pool": "a"})
    plan = place(CACHE, demand, names(3), books)
    assert (plan.live, plan.shortage) == (frozenset(names(3)), None)


def _must_not_be_asked(_demand, book):
    raise AssertionError(f"{book.name} was asked")
