"""What a leader knows beyond the watch cache. Rebuilt at the beginning of each term."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelcache_operator.agents import Agents
from modelcache_operator.assignments import Assignments
from modelcache_operator.books import NodeBooks
from modelcache_operator.decide.world import NodeName, ObjectKey, Uid
from modelcache_operator.demands import Demands
from modelcache_operator.ports.world import ObservedWorld


@dataclass(slots=True)
class Memory:
    """`unsatisfied` are the ModelCaches for which a new node or new room would matter."""

    assignments: Assignments
    agents: Agents
    books: NodeBooks
    demands: Demands = field(default_factory=Demands)
    unsatisfied: set[ObjectKey] = field(default_factory=set)

    def begin_term(self, world: ObservedWorld) -> None:
        """Forget what an earlier term believed, and read back what CacheNodes say."""
        self.assignments.rebuild(world.cache_nodes())
        self.demands.rebuild(world.cache_nodes())
        self.agents.reset()
        self.unsatisfied.clear()
        self.books.reset()

    def holders(self, version: Uid) -> frozenset[NodeName]:
        """The nodes that should hold the version, for a ModelCache or for a pod."""
        return self.assignments.holders(version) | self.demands.holders(version)
