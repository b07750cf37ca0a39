"""What a leader knows beyond the watch cache. Rebuilt at the beginning of each term."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from modelcache_operator.agents import Agents
from modelcache_operator.assignments import Assignments
from modelcache_operator.books import NodeBooks
from modelcache_operator.decide.node_status import find_short_of_room
from modelcache_operator.decide.world import CacheNodeView, NodeName, ObjectKey, Uid
from modelcache_operator.demands import Demands
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.traffic_book import TrafficBook

# A fleet that fills is told that often which copies may be given up.
_WITHHELD_SECONDS: Final = 120.0
# While a ModelCache lacks room, that of those that are complete is told as often as this.
_MISSED_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Withheld:
    """Copies that may be given up, of which no node is told until then (monotonic seconds).

    Zero: they are to be told at the next look.
    """

    until: float
    is_filling: bool


@dataclass(slots=True)
class Memory:
    """`unsatisfied` are the ModelCaches for which a new node or new room would matter.

    `everywhere` are those that are on all nodes, for which a new node alone would. `withheld` are
    those with copies that nobody is told yet that they may be given up. `short_nodes` are those
    whose agents lack room.
    `not_read_back` are nodes whose CacheNode could not be read when the term began. `over_quota`
    are namespaces whose nodes have been told that they use more than they are granted.
    """

    assignments: Assignments
    agents: Agents
    books: NodeBooks
    demands: Demands = field(default_factory=Demands)
    unsatisfied: set[ObjectKey] = field(default_factory=set)
    everywhere: set[ObjectKey] = field(default_factory=set)
    withheld: dict[ObjectKey, Withheld] = field(default_factory=dict)
    short_nodes: set[NodeName] = field(default_factory=set)
    not_read_back: set[NodeName] = field(default_factory=set)
    traffic: TrafficBook = field(default_factory=TrafficBook)
    over_quota: set[str] = field(default_factory=set)

    def begin_term(self, world: ObservedWorld) -> None:
        """Forget what an earlier term believed, and read back what CacheNodes say."""
        self.assignments.rebuild(world.cache_nodes())
        self.demands.rebuild(world.cache_nodes())
        self.not_read_back = set(world.unreadable.cache_nodes)
        self.agents.reset()
        self.unsatisfied.clear()
        self.everywhere.clear()
        self.withheld.clear()
        nodes = world.cache_nodes()
        self.short_nodes = {node.name for node in nodes if find_short_of_room(node)}
        self.traffic.clear()
        self.over_quota = _read_over_quota(world)
        self.books.reset()

    def read_back(self, cache_node: CacheNodeView) -> frozenset[ObjectKey]:
        """Make up for a CacheNode that can be read only now; returns the ModelCaches it holds.

        Empty if it was read back already.
        """
        if cache_node.name not in self.not_read_back:
            return frozenset()
        self.not_read_back.discard(cache_node.name)
        placed = self.assignments.read_back(cache_node)
        return placed | self.demands.read_back(cache_node)

    def stop_withholding(self, caches: Iterable[ObjectKey]) -> frozenset[ObjectKey]:
        """Nodes are to be told; returns those of the ModelCaches that have not heard of it."""
        told = Withheld(0.0, is_filling=False)
        found = [key for key in caches if self.withheld.get(key, told) != told]
        self.withheld.update(dict.fromkeys(found, told))
        return frozenset(found)

    def withhold(self, cache: ObjectKey, now: float, *, is_filling: bool) -> float | None:
        """Seconds for which nodes are not told what the ModelCache may give up; None: tell them.

        Each node of each copy is written once for it. So whoever is complete waits for the others
        that fill, which have mostly the same nodes; while a ModelCache lacks room, with those alone
        that are complete within the same few seconds.
        """
        found = self.withheld.get(cache)
        until = found.until if found is not None else now + _WITHHELD_SECONDS
        if self.unsatisfied and not is_filling:
            until = min(until, math.ceil(now / _MISSED_SECONDS) * _MISSED_SECONDS)
        self.withheld[cache] = Withheld(until, is_filling=is_filling)
        if until <= now or not self.is_filling(now):
            del self.withheld[cache]
            return None
        return until - now

    def is_filling(self, now: float) -> bool:
        """True if one of those that withhold something waits for copies that come."""
        return any(one.is_filling and now < one.until for one in self.withheld.values())

    def note_room(self, node: NodeName, *, is_short: bool) -> None:
        """What the node's agent says of its room."""
        if is_short:
            self.short_nodes.add(node)
        else:
            self.short_nodes.discard(node)

    def forget(self, cache: ObjectKey) -> None:
        """The ModelCache wants nothing any more."""
        self.unsatisfied.discard(cache)
        self.everywhere.discard(cache)
        self.withheld.pop(cache, None)
        self.traffic.forget(cache)

    def holders(self, version: Uid) -> frozenset[NodeName]:
        """The nodes that should hold the version, for a ModelCache or for a pod."""
        return self.assignments.holders(version) | self.demands.holders(version)


def _read_over_quota(world: ObservedWorld) -> set[str]:
    """The namespaces of entries that were written as beyond a quota."""
    found = set[str]()
    for node in world.cache_nodes():
        over = {entry.uid for entry in node.spec.entries if entry.over_quota}
        found |= {ref.namespace for ref in node.spec.caches if ref.stable_uid in over}
    return found
