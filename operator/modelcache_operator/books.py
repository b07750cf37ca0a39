"""The books of all nodes, kept up to date piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from modelcache_operator.agents import Agents
from modelcache_operator.assignments import Assignments
from modelcache_operator.decide.node_book import NodeBook, make_node_book
from modelcache_operator.decide.placement import Books
from modelcache_operator.decide.world import NodeName, Uid
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
        for name in self._stale:
            node = self._world.node(name)
            if node is None:
                self._books.pop(name, None)
                continue
            book = make_node_book(
                node,
                self._world.cache_node(name),
                self._agents.liveness(name),
                self._sizes(name),
                tiers=self._assignments.tiers_on(name),
                priorities=self._assignments.priorities_on(name),
                caches=len(self._assignments.on(name)),
                yielding=self._yielding(name),
            )
            staying = self._staying(name)
            self._books[name] = replace(book, evictable=book.evictable - staying)
        self._stale.clear()
        return self._books

    def _sizes(self, name: NodeName) -> dict[Uid, int]:
        sizes: dict[Uid, int] = {}
        for cache in self._assignments.on(name):
            assignment = self._assignments.of(cache)
            if assignment is None:
                continue
            for uid in assignment.versions_on(name):
                version = self._world.model_version(uid)
                if version is not None:
                    sizes[uid] = version.status.size_bytes or 0
                else:
                    sizes[uid] = self._written_size(name, uid)
        return sizes

    def _yielding(self, name: NodeName) -> frozenset[Uid]:
        """Held versions that are about to be told to make room."""
        found = (self._assignments.of(cache) for cache in self._assignments.on(name))
        held = (one for assignment in found if assignment for one in assignment.held)
        return frozenset(one.version for one in held if name in one.evictable)

    def _staying(self, name: NodeName) -> frozenset[Uid]:
        """Versions that are about to be told to stay."""
        found = (self._assignments.of(cache) for cache in self._assignments.on(name))
        copies = (copy for assignment in found if assignment for copy in assignment.copies_on(name))
        return frozenset(uid for _, uid, is_evictable in copies if not is_evictable)

    def _written_size(self, name: NodeName, uid: Uid) -> int:
        """What the node was told of a version that is gone or cannot be read."""
        cache_node = self._world.cache_node(name)
        entry = cache_node.spec.find_entry(uid) if cache_node else None
        return entry.size_bytes if entry else 0
