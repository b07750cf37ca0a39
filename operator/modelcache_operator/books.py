"""The books of all nodes, kept up to date piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from modelcache_api.names import Priority, Tier
from modelcache_operator.agents import Agents
from modelcache_operator.assignments import Assignments
from modelcache_operator.decide.cache_node_spec import Role
from modelcache_operator.decide.node_book import NodeBook, make_node_book
from modelcache_operator.decide.placement import Books
from modelcache_operator.decide.world import CacheNodeView, NodeName, NodeView, Uid
from modelcache_operator.ports.world import ObservedWorld


class NodeBooks:
    """Recomputes a node's book only after something about that node has changed."""

    def __init__(self, world: ObservedWorld, agents: Agents, assignments: Assignments) -> None:
        self._world = world
        self._agents = agents
        self._assignments = assignments
        self._books: dict[NodeName, NodeBook] = {}
        self._stale: set[NodeName] = set()

    def reset(self) -> None:
        """Recompute everything when next asked."""
        self._books = {}
        self._stale = {node.name for node in self._world.nodes()}

    def invalidate(self, names: Iterable[NodeName]) -> None:
        """Something about these nodes has changed."""
        self._stale.update(names)

    def all(self) -> Books:
        """The books of all nodes that exist. Read it before the next await."""
        # Of the world as it is until then: a version is looked up once for all nodes.
        sizes: dict[Uid, int | None] = {}
        for name in self._stale:
            node = self._world.node(name)
            if node is None:
                self._books.pop(name, None)
                continue
            self._books[name] = self._make(node, sizes)
        self._stale.clear()
        return self._books

    def _make(self, node: NodeView, known: dict[Uid, int | None]) -> NodeBook:
        name, cache_node = node.name, self._world.cache_node(node.name)
        promised = self._sum_up(name, cache_node, known)
        book = make_node_book(
            node,
            cache_node,
            self._agents.liveness(name),
            promised.sizes,
            tiers=promised.tiers,
            priorities=promised.priorities,
            caches=promised.caches,
            yielding=frozenset(promised.yielding),
        )
        return replace(book, evictable=book.evictable - promised.staying)

    def _sum_up(
        self, name: NodeName, cache_node: CacheNodeView | None, known: dict[Uid, int | None]
    ) -> _Promised:
        """In one pass: a wave of placements asks for every node again and again."""
        found = _Promised()
        for assignment in self._assignments.each_on(name):
            found.caches += 1
            tier = assignment.tier_on(name)
            for role, uid, is_evictable in assignment.copies_on(name):
                if uid not in known:
                    known[uid] = self._size(uid)
                size = known[uid]
                found.sizes[uid] = _told_size(uid, cache_node) if size is None else size
                found.raise_to(uid, tier, assignment.priority)
                if not is_evictable:
                    found.staying.add(uid)
                elif role is Role.HELD:
                    found.yielding.add(uid)
        return found

    def _size(self, uid: Uid) -> int | None:
        version = self._world.model_version(uid)
        return None if version is None else version.status.size_bytes or 0


def _told_size(uid: Uid, cache_node: CacheNodeView | None) -> int:
    """What the node was told of a version that is gone or cannot be read."""
    entry = cache_node.spec.find_entry(uid) if cache_node else None
    return entry.size_bytes if entry else 0


@dataclass(slots=True)
class _Promised:
    """What one node is promised for: by version the highest of what any ModelCache wants.

    `yielding` are held versions that are about to be told to make room, `staying` those that are
    about to be told to stay.
    """

    caches: int = 0
    sizes: dict[Uid, int] = field(default_factory=dict)
    tiers: dict[Uid, Tier] = field(default_factory=dict)
    priorities: dict[Uid, Priority] = field(default_factory=dict)
    yielding: set[Uid] = field(default_factory=set)
    staying: set[Uid] = field(default_factory=set)

    def raise_to(self, uid: Uid, tier: Tier, priority: Priority) -> None:
        """At least this tier and this priority."""
        if uid not in self.tiers:
            self.tiers[uid], self.priorities[uid] = tier, priority
            return
        if tier.speed > self.tiers[uid].speed:
            self.tiers[uid] = tier
        if priority.rank > self.priorities[uid].rank:
            self.priorities[uid] = priority
