"""Which nodes a change of an assignment concerns: those whose part of it has changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelcache_api.names import Priority, Tier
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
