"""Which nodes a change of an assignment concerns: those whose part of it has changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders import make_cache_node, make_entry_spec
from modelcache_api.names import EntryOrigin, Priority, Tier
from modelcache_api.v1alpha1.cache_node import CacheRef
from modelcache_operator.assignments import Assignment, Assignments, Beside
from modelcache_operator.decide.world import NodeName, ObjectKey, Uid

NODES = [NodeName(f"n{number}") for number in range(4)]
KEY = ObjectKey("search", "c1")

some_nodes = st.frozensets(st.sampled_from(NODES))


@st.composite
def besides(draw):
    version = draw(st.sampled_from([Uid("v2"), Uid("v3")]))
    return Beside(version, draw(some_nodes), draw(some_nodes))


assignments = st.builds(
    Assignment,
    version=st.just(Uid("v1")),
    nodes=some_nodes,
    evictable=some_nodes,
    tier=st.sampled_from([Tier.DISK, Tier.HOST]),
    slower=some_nodes,
    canary=st.none() | besides(),
    held=st.lists(besides(), max_size=2, unique_by=lambda one: one.version).map(tuple),
    priority=st.sampled_from([Priority.NORMAL, Priority.HIGH]),
    is_pinned=st.booleans(),
)


UIDS = ["v1", "v2", "v3"]


@st.composite
def cache_nodes(draw):
    """What leaders that died in the middle may have left: any versions, in any part."""
    wanted = [
        make_entry_spec(
            uid,
            tier=draw(st.sampled_from(Tier)),
            evictable=draw(st.booleans()),
            pinned=draw(st.booleans()),
            priority=draw(st.sampled_from(Priority)),
            origin=draw(st.sampled_from(EntryOrigin)),
        )
        for uid in draw(st.sets(st.sampled_from(UIDS)))
    ]
    refs = [
        CacheRef(
            namespace="search",
            name=name,
            stable_uid=draw(st.sampled_from(UIDS)),
            origin=draw(st.sampled_from(EntryOrigin)),
            canary_uid=draw(st.none() | st.sampled_from(UIDS)),
            held_uids=tuple(draw(st.sets(st.sampled_from(UIDS), max_size=2))),
        )
        for name in draw(st.sets(st.sampled_from(["c1", "c2"])))
    ]
    return wanted, refs


@given(st.lists(cache_nodes(), max_size=4))
def test_all_nodes_at_once_are_read_back_as_one_by_one(written):
    nodes = [
        make_cache_node(name, wanted=wanted, caches=refs)
        for name, (wanted, refs) in zip(NODES, written, strict=False)
    ]
    at_once, one_by_one = Assignments(), Assignments()
    at_once.rebuild(nodes)
    for node in nodes:
        one_by_one.read_back(node)
    assert set(at_once.caches()) == set(one_by_one.caches())
    for key in at_once.caches():
        assert at_once.of(key) == one_by_one.of(key)
    for node in NODES:
        assert at_once.on(node) == one_by_one.on(node)


class Counting(Assignments):
    puts = 0

    def put(self, cache, new):
        self.puts += 1
        return super().put(cache, new)


def test_C40_a_term_begins_with_one_thought_for_each_cache_and_not_for_each_node():
    """Comparing what is known so far at every node is quadratic: the Lease ends meanwhile."""
    refs = [CacheRef(namespace="search", name=name, stable_uid="v1") for name in ("c1", "c2")]
    nodes = [
        make_cache_node(f"n{number}", wanted=[make_entry_spec("v1")], caches=refs)
        for number in range(50)
    ]
    memory = Counting()
    memory.rebuild(nodes)
    assert memory.puts == 2
    assert all(len(memory.of(key).nodes) == 50 for key in memory.caches())


def told_to(one: Assignment, node: NodeName):
    copies = tuple(one.copies_on(node))
    return copies and (copies, one.tier_on(node), one.priority, one.is_pinned)


@given(assignments, assignments)
def test_the_nodes_that_are_told_something_else_are_named_and_no_others(old, new):
    memory = Assignments()
    assert memory.put(KEY, old) == old.everywhere
    changed = memory.put(KEY, new)
    assert changed == {node for node in NODES if told_to(old, node) != told_to(new, node)}


@given(assignments, some_nodes, some_nodes)
def test_so_it_is_where_copies_alone_have_moved(old, nodes, evictable):
    new = Assignment(
        **{name: getattr(old, name) for name in Assignment.__slots__}
        | {"nodes": nodes, "evictable": evictable}
    )
    memory = Assignments()
    memory.put(KEY, old)
    changed = memory.put(KEY, new)
    assert changed == {node for node in NODES if told_to(old, node) != told_to(new, node)}
