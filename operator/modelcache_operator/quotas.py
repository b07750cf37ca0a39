"""What namespaces may hold and what they are charged, gathered from the leader's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from modelcache_api.names import Reason, Retention, Tier
from modelcache_operator.assignments import Assignment
from modelcache_operator.decide.quota import (
    Account,
    Holding,
    Item,
    Limits,
    join_limits,
    make_account,
    read_limits,
    sum_charges,
)
from modelcache_operator.decide.shortage import Shortage
from modelcache_operator.decide.world import ModelCacheView, NodeName, ObjectKey, Uid
from modelcache_operator.memory import Memory
from modelcache_operator.ports.world import ObservedWorld


@dataclass(frozen=True, slots=True)
class Quotas:
    """None of its methods waits. `default` holds for namespaces without a ModelCacheQuota."""

    world: ObservedWorld
    memory: Memory
    default: Callable[[], Limits]

    def limits_of(self, namespace: str) -> Limits:
        """What is granted there."""
        own = [
            read_limits(quota.spec, f"ModelCacheQuota {quota.key.name}")
            for quota in self.world.quotas_in(namespace)
        ]
        return join_limits(own) if own else self.default()

    def usage(self, namespace: str) -> dict[Item, int]:
        """What the namespace is charged."""
        return sum_charges(self._holdings(namespace))

    def account(self, cache: ModelCacheView, version: Uid, *, is_canary: bool = False) -> Account:
        """What is left for the stable version of a ModelCache, or for its canary."""
        namespace, limits = cache.key.namespace, self.limits_of(cache.key.namespace)
        wish = Holding(
            version,
            self._size(version, frozenset()),
            frozenset(),
            cache.spec.tier,
            is_pinned=cache.spec.retention is Retention.PINNED,
        )
        others = self._holdings(namespace, (cache.key, version, is_canary))
        account = make_account(limits, wish, others, cache.spec)
        unknown = self._refuse_unreadable(namespace)
        return account if unknown is None else replace(account, refusal=unknown)

    def _refuse_unreadable(self, namespace: str) -> Shortage | None:
        """What a newer release grants or forbids is not known: nothing changes until it is."""
        keys = self.world.unreadable.quotas.values()
        key = min((key for key in keys if key.namespace == namespace), default=None)
        if key is None:
            return None
        message = (
            f"ModelCacheQuota {key.name} holds what this operator does not know: what is verified "
            "stays, and nothing new is placed: upgrade the operator"
        )
        return Shortage(Reason.QUOTA_EXCEEDED, message)

    def allows_demand(
        self, node: NodeName, cache: ModelCacheView, version: Uid, also: tuple[Holding, ...]
    ) -> bool:
        """True if a pod's copy may be paid for beside all that is held and `also`."""
        limits, wish = self.limits_of(cache.key.namespace), self.demanded(node, cache, version)
        others = chain(self._holdings(cache.key.namespace), also)
        return make_account(limits, wish, others, cache.spec).allows(wish.nodes)

    def demanded(self, node: NodeName, cache: ModelCacheView, version: Uid) -> Holding:
        """What a pod's copy there is charged as."""
        nodes = frozenset({node})
        return Holding(version, self._size(version, nodes), nodes, cache.spec.tier)

    def _holdings(
        self, namespace: str, but: tuple[ObjectKey, Uid, bool] | None = None
    ) -> Iterator[Holding]:
        """Copies of nodes that are lost are not charged: their replacements are."""
        books = self.memory.books.all()
        lost = frozenset(name for name, book in books.items() if not book.has_live_agent)
        for key in self.memory.assignments.in_namespace(namespace):
            assignment = self.memory.assignments.of(key)
            if assignment is not None:
                for version, is_canary, holding in self._split(assignment, lost):
                    if but != (key, version, is_canary):
                        yield holding
        for key, node, version in self.memory.demands.in_namespace(namespace):
            cache = self.world.model_cache(key)
            if node not in lost:
                tier = cache.spec.tier if cache is not None else Tier.DISK
                nodes = frozenset({node})
                yield Holding(version, self._size(version, nodes), nodes, tier)

    def _split(
        self, one: Assignment, lost: frozenset[NodeName]
    ) -> Iterator[tuple[Uid, bool, Holding]]:
        parts = [(one.version, False, one.nodes, one.is_pinned)]
        if one.canary is not None:
            parts.append((one.canary.version, True, one.canary.nodes, one.is_pinned))
        parts += [(held.version, False, held.nodes, False) for held in one.held]
        for version, is_canary, nodes, is_pinned in parts:
            # A difference copies the whole set, of every ModelCache, for each that is placed.
            live, size = nodes - lost if lost else nodes, self._size(version, nodes)
            yield version, is_canary, Holding(version, size, live, one.tier, one.slower, is_pinned)

    def _size(self, version: Uid, nodes: frozenset[NodeName]) -> int:
        """Of a version that is gone, what its nodes were told."""
        found = self.world.model_version(version)
        if found is not None:
            return found.status.size_bytes or 0
        books = self.memory.books.all()
        return max(
            (books[name].wanted.get(version, 0) for name in nodes if name in books), default=0
        )
