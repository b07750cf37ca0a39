from __future__ import annotations

import pytest

from builders import GIB, digest, make_book, make_books, make_entry, make_version
from modelcache_api.names import EntryOrigin, EntryState, Tier
from modelcache_operator.decide.cache_node_spec import (
    PlacedCopy,
    choose_evictable,
    make_cache_node_spec,
)
from modelcache_operator.decide.demand import DemandedCopy
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.world import ObjectKey, Uid

NODE = Uid("uid-n1")
DISK, HOST = Tier.DISK, Tier.HOST


def copy(
    cache: str,
    version,
    *,
    may_be_evicted: bool = False,
    namespace: str = "search",
    tier: Tier = DISK,
):
    return PlacedCopy(ObjectKey(namespace, cache), version, may_be_evicted, tier=tier)


def test_an_entry_carries_all_that_an_agent_needs():
    version = make_version(
        content_digest=digest("c"),
        content_manifest_digest=digest("d"),
        node_label_key="k/l",
        source_revision="0a" * 20,
    )
    spec = make_cache_node_spec(NODE, [copy("c1", version, may_be_evicted=True)])
    entry = spec.entries[0]
    assert (entry.uid, entry.source_digest, entry.content_digest) == (
        "v1",
        digest("a"),
        digest("c"),
    )
    assert (entry.size_bytes, entry.label_key, entry.evictable) == (GIB, "k/l", True)
    assert (entry.model, entry.revision) == (version.spec.model, "0a" * 20)
    assert (spec.caches[0].namespace, spec.caches[0].name) == ("search", "c1")
    assert spec.caches[0].stable_uid == "v1"


def test_a_version_that_is_not_resolved_has_nothing_to_fetch():
    spec = make_cache_node_spec(NODE, [copy("c1", make_version(resolved=False))])
    assert spec.entries == spec.caches == ()


def test_bytes_that_contradict_the_pin_are_held_nowhere():
    adopted = {"content_digest": digest("c"), "content_manifest_digest": digest("d")}
    pinned = make_version(spec_digest=digest("e"), node_label_key="k/l", **adopted)
    spec = make_cache_node_spec(NODE, [copy("c1", pinned)])
    assert spec.entries == spec.caches == ()


@pytest.mark.parametrize("tiers", [(DISK, HOST), (HOST, DISK), (HOST, HOST)])
def test_the_fastest_tier_that_any_of_its_caches_wants_is_that_of_the_entry(tiers):
    for evictable in ((False, True), (True, False), (True, True)):
        copies = [
            copy(f"c{n}", make_version(), tier=tier, may_be_evicted=may)
            for n, (tier, may) in enumerate(zip(tiers, evictable, strict=True))
        ]
        (entry,) = make_cache_node_spec(NODE, copies).entries
        assert (entry.tier, entry.evictable) == (HOST, all(evictable))


def test_a_demand_in_memory_lifts_what_is_placed_on_the_disk_and_stays_a_placed_entry():
    demand = DemandedCopy(ObjectKey("search", "c2"), make_version(), tier=HOST)
    (entry,) = make_cache_node_spec(NODE, [copy("c1", make_version())], [demand]).entries
    assert (entry.tier, entry.origin) == (HOST, EntryOrigin.PLACEMENT)


def test_two_caches_of_one_version_share_an_entry_that_both_must_give_up():
    version = make_version()
    for first, second, shared in ((True, True, True), (True, False, False), (False, True, False)):
        copies = [
            copy("c1", version, may_be_evicted=first),
            copy("c2", version, may_be_evicted=second),
        ]
        spec = make_cache_node_spec(NODE, copies)
        assert len(spec.entries) == 1
        assert len(spec.caches) == 2
        assert spec.entries[0].evictable is shared


def test_C33_namespaces_and_names_that_join_alike_stay_apart():
    one, two = make_version(uid="v1"), make_version(uid="v2")
    copies = [copy("c", one, namespace="a-b"), copy("b-c", two, namespace="a")]
    spec = make_cache_node_spec(NODE, copies)
    assert [(ref.namespace, ref.name, ref.stable_uid) for ref in spec.caches] == [
        ("a", "b-c", "v2"),
        ("a-b", "c", "v1"),
    ]


def test_the_order_of_what_comes_in_does_not_matter():
    copies = [copy(f"c{n}", make_version(f"m{n}", uid=f"v{n}")) for n in range(9)]
    assert make_cache_node_spec(NODE, copies) == make_cache_node_spec(NODE, reversed(copies))


def test_a_tenant_with_more_caches_than_a_node_lists_blocks_nobodys_list():
    version, other = make_version(), make_version("m2", uid="v2")
    copies = [copy("first", other, namespace="aa")]
    copies += [copy(f"c{number:03}", version) for number in range(300)]
    spec = make_cache_node_spec(NODE, reversed(copies))
    assert len(spec.caches) == 256
    assert [entry.uid for entry in spec.entries] == ["v1", "v2"]
    assert (spec.caches[0].name, spec.caches[-1].name) == ("first", "c254")


def test_what_pods_read_is_left_out_before_what_is_placed():
    version, read = make_version(), make_version("m2", uid="v2")
    copies = [copy(f"c{number:03}", version) for number in range(255)]
    demands = [DemandedCopy(ObjectKey("aa", name), read) for name in ("old", "young")]
    spec = make_cache_node_spec(NODE, copies, demands)
    assert len(spec.caches) == 256
    assert [ref.name for ref in spec.caches if ref.origin is EntryOrigin.DEMAND] == ["old"]
    spec = make_cache_node_spec(NODE, [*copies, copy("more", version)], demands)
    assert [entry.uid for entry in spec.entries] == ["v1"]


def test_bytes_that_contradict_the_pin_are_held_for_no_pod():
    adopted = {"content_digest": digest("c"), "content_manifest_digest": digest("d")}
    pinned = make_version(spec_digest=digest("e"), **adopted)
    spec = make_cache_node_spec(NODE, (), [DemandedCopy(ObjectKey("search", "c1"), pinned)])
    assert spec.entries == spec.caches == ()


def test_a_demanded_version_that_cannot_be_read_keeps_its_entry_and_may_be_evicted():
    (placed,) = make_cache_node_spec(NODE, [copy("c1", make_version())]).entries
    demand = DemandedCopy(ObjectKey("search", "c2"), placed)
    (entry,) = make_cache_node_spec(NODE, (), [demand]).entries
    assert (entry.uid, entry.origin, entry.evictable) == ("v1", EntryOrigin.DEMAND, True)
    (entry,) = make_cache_node_spec(NODE, [copy("c1", placed)], [demand]).entries
    assert entry == placed


def evictable(states, *, min_ready=1, now=frozenset(), silent=()):
    books = make_books(
        *(
            make_book(
                name,
                entries=[make_entry(state=state)],
                liveness=Liveness.SILENT if name in silent else Liveness.ALIVE,
            )
            for name, state in states.items()
        )
    )
    return choose_evictable(
        Uid("c"), Uid("v1"), states, min_ready=min_ready, evictable_now=now, books=books
    )


CACHED, PENDING = EntryState.CACHED, EntryState.PENDING


def test_min_ready_verified_copies_are_protected_and_the_rest_may_go():
    states = {f"n{n}": CACHED for n in range(5)}
    for min_ready in (1, 2, 5, 9):
        assert len(evictable(states, min_ready=min_ready)) == max(0, 5 - min_ready)


def test_copies_that_are_not_verified_are_neither_protectors_nor_given_up():
    assert evictable({"n1": CACHED, "n2": PENDING, "n3": PENDING}) == frozenset()


def test_nobody_who_may_be_evicted_already_becomes_a_protector_without_need():
    states = {f"n{n}": CACHED for n in range(5)}
    before = evictable(states)
    assert evictable(states, now=before) == before
    assert before <= evictable(states | {"n9": CACHED}, now=before)


def test_a_silent_nodes_copy_protects_no_other_and_is_not_given_up():
    states = {f"n{n}": CACHED for n in range(3)}
    for silent in states:
        assert len(evictable(states, silent=[silent]) & (states.keys() - {silent})) == 1
        assert silent not in evictable(states, silent=[silent], now={silent})
    assert evictable({"n1": CACHED, "n2": CACHED}, silent=["n1"]) == frozenset()


def test_protection_moves_when_its_holder_is_no_longer_verified():
    before = evictable({"n1": CACHED, "n2": CACHED})
    (holder,), (other,) = {"n1", "n2"} - before, before
    assert evictable({holder: PENDING, other: CACHED}, now=before) == frozenset()
