"""What a node holds for its own pods."""

from __future__ import annotations

import pytest

from builders import GIB, make_book, make_pod_view, make_version
from modelcache_api.names import Tier, Track
from modelcache_operator.decide.demand import choose_demands
from modelcache_operator.decide.world import ObjectKey

A, B = ObjectKey("search", "a"), ObjectKey("search", "b")
VERSIONS = {
    A: make_version("ma", uid="va", size_bytes=4 * GIB),
    B: make_version("mb", uid="vb", size_bytes=4 * GIB),
}


def choose_copies(*pods, placed=frozenset(), versions=None, tier=Tier.DISK, **book):
    known = VERSIONS if versions is None else versions
    here = frozenset((key, Track.STABLE) for key in placed)
    return choose_demands(
        pods, here, lambda want: known.get(want[0]), lambda _cache: tier, make_book(**book)
    )


def choose(*pods, **given):
    return [one.cache.name for one in choose_copies(*pods, **given)]


def test_a_pod_brings_its_model_cache_once():
    first, second = make_pod_view("p1", cache="a"), make_pod_view("p2", cache="a")
    assert choose(first, second) == ["a"]


@pytest.mark.parametrize(
    ("pod", "options"),
    [
        pytest.param({"is_over": True}, {}, id="a pod that has ended reads nothing"),
        pytest.param({}, {"placed": {A}}, id="what is placed here needs no demand"),
        pytest.param({}, {"versions": {}}, id="an unknown ModelCache brings nothing"),
        pytest.param({}, {"capacity": None}, id="before the agent has reported nothing fits"),
        pytest.param({}, {"capacity": 3 * GIB}, id="what does not fit goes without"),
        pytest.param(
            {},
            {"capacity": 6 * GIB, "sizes": {"placed": 3 * GIB}},
            id="what placement has promised is not taken",
        ),
        pytest.param(
            {},
            {"capacity": 6 * GIB, "pending_release": 3 * GIB},
            id="bytes that readers still hold are not free",
        ),
        pytest.param(
            {},
            {"sizes": {f"v{number}": 1 for number in range(64)}},
            id="a node full of labels takes no more",
        ),
    ],
)
def test_no_demand(pod, options):
    assert choose(make_pod_view("p", cache="a", **pod), **options) == []


def test_the_oldest_pod_comes_first_where_only_one_fits():
    young = make_pod_view("p1", cache="a", created_at="2026-01-02T00:00:00Z")
    old = make_pod_view("p2", cache="b", created_at="2026-01-01T00:00:00Z")
    assert choose(young, old, capacity=5 * GIB) == ["b"]
    assert choose(young, old, capacity=9 * GIB) == ["b", "a"]


def test_a_version_that_another_model_cache_has_placed_needs_no_room():
    pod = make_pod_view("p", cache="a")
    assert choose(pod, capacity=4 * GIB, sizes={"va": 4 * GIB}) == ["a"]


def test_a_node_with_as_many_model_caches_as_it_may_list_takes_no_more():
    pods = [make_pod_view("p1", cache="a"), make_pod_view("p2", cache="b")]
    placed = [ObjectKey("search", f"c{number}") for number in range(256)]
    assert choose(*pods, placed=placed) == []
    assert choose(*pods, placed=placed[1:]) == ["a"]


def test_an_unresolved_version_has_nothing_to_fetch_yet():
    versions = {A: make_version("ma", uid="va", resolved=False)}
    assert choose(make_pod_view("p", cache="a"), versions=versions) == []


@pytest.mark.parametrize(
    ("book", "expected"),
    [
        pytest.param({"host": 9 * GIB}, [Tier.HOST, Tier.HOST], id="room for both"),
        pytest.param({"host": 5 * GIB}, [Tier.HOST, Tier.DISK], id="the younger is held on disk"),
        pytest.param({"host": 0}, [Tier.DISK, Tier.DISK], id="a tier without capacity"),
        pytest.param({}, [Tier.DISK, Tier.DISK], id="an agent that knows no such tier"),
        pytest.param(
            {"host": 5 * GIB, "sizes": {"x": 2 * GIB}, "in_host": ["x"]},
            [Tier.DISK, Tier.DISK],
            id="what placement has promised is not taken",
        ),
        pytest.param(
            {"host": 5 * GIB, "sizes": {"va": 4 * GIB}, "in_host": ["va"]},
            [Tier.HOST, Tier.DISK],
            id="what is promised for the same version is shared",
        ),
    ],
)
def test_what_pods_read_is_held_in_the_tier_of_its_model_cache_where_it_has_room(book, expected):
    old = make_pod_view("p1", cache="a", created_at="2026-01-01T00:00:00Z")
    young = make_pod_view("p2", cache="b", created_at="2026-01-02T00:00:00Z")
    assert [one.tier for one in choose_copies(old, young, tier=Tier.HOST, **book)] == expected
