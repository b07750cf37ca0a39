"""Which ModelCache is placed on which nodes: the leader's memory, read back from CacheNodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from modelcache_api.names import EntryOrigin, Priority, Tier
from modelcache_api.v1alpha1.cache_node import CacheRef, EntrySpec
from modelcache_operator.decide.cache_node_spec import Role
from modelcache_operator.decide.stuck import StuckSince
from modelcache_operator.decide.world import CacheNodeView, NodeName, ObjectKey, Uid

_NOTHING: frozenset[ObjectKey] = frozenset()
_NOWHERE: frozenset[NodeName] = frozenset()


@dataclass(frozen=True, slots=True)
class Beside:
    """A version that is held beside the stable one, and which of its copies may be given up."""

    version: Uid
    nodes: frozenset[NodeName]
    evictable: frozenset[NodeName] = field(default=_NOWHERE)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where one ModelCache's versions are held, in which tier, and which copies may be given up.

    `nodes` and `evictable` are of the stable `version`; `held` have left the spec. `slower` are the
    nodes that cannot hold the stable version in that tier, and keep all versions on their disks
    alone. Of this term alone: since when copies get no further, and which nodes they have left
    for it.
    """

    version: Uid
    nodes: frozenset[NodeName] = field(default=frozenset())
    evictable: frozenset[NodeName] = field(default=frozenset())
    tier: Tier = Tier.DISK
    slower: frozenset[NodeName] = field(default=frozenset())
    stuck_since: StuckSince = field(default_factory=dict)
    left: frozenset[NodeName] = field(default=frozenset())
    canary: Beside | None = None
    held: tuple[Beside, ...] = ()
    priority: Priority = Priority.NORMAL
    is_pinned: bool = False

    @property
    def besides(self) -> tuple[Beside, ...]:
        """All versions but the stable one."""
        return self.held if self.canary is None else (self.canary, *self.held)

    @property
    def versions(self) -> frozenset[Uid]:
        """All versions."""
        return frozenset((self.version, *(one.version for one in self.besides)))

    @property
    def everywhere(self) -> frozenset[NodeName]:
        """The nodes of all versions."""
        return self.nodes.union(*(one.nodes for one in self.besides))

    @property
    def canary_version(self) -> Uid | None:
        """The version of the canary."""
        return self.canary.version if self.canary is not None else None

    def copies_on(self, node: NodeName) -> Iterable[tuple[Role, Uid, bool]]:
        """What one node is to hold, in which role, and whether it may give it up."""
        if node in self.nodes:
            yield Role.STABLE, self.version, node in self.evictable
        if self.canary is not None and node in self.canary.nodes:
            yield Role.CANARY, self.canary.version, node in self.canary.evictable
        for one in self.held:
            if node in one.nodes:
                yield Role.HELD, one.version, node in one.evictable

    def tier_on(self, node: NodeName) -> Tier:
        """The fastest tier that the node is to hold them in."""
        return Tier.DISK if node in self.slower else self.tier

    def versions_on(self, node: NodeName) -> frozenset[Uid]:
        """The versions that one node is to hold."""
        return frozenset(version for _, version, _ in self.copies_on(node))

    def nodes_of(self, version: Uid) -> frozenset[NodeName]:
        """The nodes that are to hold one version."""
        own = self.nodes if version == self.version else _NOWHERE
        return own.union(*(one.nodes for one in self.besides if one.version == version))

    def without(self, node: NodeName) -> Assignment:
        """The same without a node."""
        gone = frozenset({node})
        return replace(
            self,
            nodes=self.nodes - gone,
            evictable=self.evictable - gone,
            slower=self.slower - gone,
            canary=self.canary and _leave(self.canary, gone),
            held=tuple(_leave(one, gone) for one in self.held),
        )


def _leave(beside: Beside, nodes: frozenset[NodeName]) -> Beside:
    return Beside(beside.version, beside.nodes - nodes, beside.evictable - nodes)


class Assignments:
    """All assignments, by ModelCache and by node. Pure memory; one event loop.

    It runs ahead of the CacheNodes that are written from it, so that two decisions in a row
    never promise the same room twice.
    """

    def __init__(self) -> None:
        self._by_cache: dict[ObjectKey, Assignment] = {}
        self._by_node: dict[NodeName, set[ObjectKey]] = defaultdict(set)
        self._by_version: dict[Uid, set[ObjectKey]] = defaultdict(set)
        self._by_namespace: dict[str, set[ObjectKey]] = defaultdict(set)

    def rebuild(self, cache_nodes: Iterable[CacheNodeView]) -> None:
        """Forget everything and read it back from what was written last, by whichever leader."""
        self._by_cache.clear()
        self._by_node.clear()
        self._by_version.clear()
        self._by_namespace.clear()
        self._gather(cache_nodes)

    def read_back(self, cache_node: CacheNodeView) -> frozenset[ObjectKey]:
        """Add what was written for one node; returns the ModelCaches that have copies there."""
        self._gather((cache_node,))
        return self.on(cache_node.name)

    def _gather(self, cache_nodes: Iterable[CacheNodeView]) -> None:
        """Each ModelCache is remembered once, with what all the nodes say of it."""
        drafts: dict[ObjectKey, _Draft] = {}
        for cache_node in cache_nodes:
            entries = {entry.uid: entry for entry in cache_node.spec.entries}
            for ref in cache_node.spec.caches:
                canary = _placed_canary(ref, entries)
                if ref.origin is not EntryOrigin.PLACEMENT and not canary and not ref.held_uids:
                    continue
                key = ObjectKey(ref.namespace, ref.name)
                if key not in drafts:
                    known = self._by_cache.get(key) or Assignment(Uid(ref.stable_uid))
                    drafts[key] = _Draft(known)
                drafts[key].add(cache_node.name, ref, canary, entries)
        for key, draft in drafts.items():
            self.put(key, draft.freeze())

    def of(self, cache: ObjectKey) -> Assignment | None:
        """The assignment of one ModelCache."""
        return self._by_cache.get(cache)

    def __len__(self) -> int:
        """How many ModelCaches are placed somewhere."""
        return len(self._by_cache)

    def caches(self) -> Iterable[ObjectKey]:
        """All ModelCaches that are placed somewhere."""
        return tuple(self._by_cache)

    def in_namespace(self, namespace: str) -> Iterable[ObjectKey]:
        """Those of one namespace."""
        return tuple(self._by_namespace.get(namespace, ()))

    def on(self, node: NodeName) -> frozenset[ObjectKey]:
        """The ModelCaches that have a version on one node."""
        return frozenset(self._by_node.get(node, _NOTHING))

    def each_on(self, node: NodeName) -> tuple[Assignment, ...]:
        """The assignments of those."""
        return tuple(self._by_cache[key] for key in self._by_node.get(node, ()))

    def placed_on(self, node: NodeName) -> frozenset[ObjectKey]:
        """Those of them whose stable version is placed there."""
        return frozenset(key for key in self.on(node) if node in self._by_cache[key].nodes)

    def holders(self, version: Uid) -> frozenset[NodeName]:
        """The nodes on which the version is placed, by any ModelCache."""
        caches = self._by_version.get(version, ())
        return frozenset().union(*(self._by_cache[cache].nodes_of(version) for cache in caches))

    def put(self, cache: ObjectKey, new: Assignment) -> frozenset[NodeName]:
        """Remember; returns the nodes whose CacheNode changes by it."""
        old = self._by_cache.get(cache)
        if old == new:
            return frozenset()
        self._by_cache[cache] = new
        self._by_namespace[cache.namespace].add(cache)
        for version in new.versions:
            self._by_version[version].add(cache)
        if old is None:
            self._index(cache, new.everywhere, frozenset())
            return new.everywhere
        self._index(cache, new.everywhere, old.everywhere)
        for version in old.versions - new.versions:
            self._forget_version(cache, version)
        if old.version != new.version:
            return old.everywhere | new.everywhere
        if _frame(old) == _frame(new):
            return _moved(old, new)
        return frozenset(node for node, *_ in _marks(old) ^ _marks(new))

    def drop(self, cache: ObjectKey) -> frozenset[NodeName]:
        """Forget a ModelCache; returns the nodes where it was."""
        old = self._by_cache.pop(cache, None)
        if old is None:
            return frozenset()
        self._index(cache, frozenset(), old.everywhere)
        self._by_namespace[cache.namespace].discard(cache)
        for version in old.versions:
            self._forget_version(cache, version)
        return old.everywhere

    def drop_node(self, node: NodeName) -> frozenset[ObjectKey]:
        """Forget a node that is gone for good; returns the ModelCaches that were there."""
        caches = self.on(node)
        for cache in caches:
            self.put(cache, self._by_cache[cache].without(node))
        return caches

    def _index(
        self, cache: ObjectKey, nodes: frozenset[NodeName], before: frozenset[NodeName]
    ) -> None:
        for node in nodes - before:
            self._by_node[node].add(cache)
        for node in before - nodes:
            self._by_node[node].discard(cache)
            if not self._by_node[node]:
                del self._by_node[node]

    def _forget_version(self, cache: ObjectKey, version: Uid) -> None:
        self._by_version[version].discard(cache)
        if not self._by_version[version]:
            del self._by_version[version]


def _marks(one: Assignment) -> set[tuple[NodeName, Tier, Priority, bool, tuple[Role, Uid, bool]]]:
    """What is written for each node, so that equal marks mean that nothing changes there."""
    return {
        (node, one.tier_on(node), one.priority, one.is_pinned, copy)
        for node in one.everywhere
        for copy in one.copies_on(node)
    }


def _frame(one: Assignment) -> tuple[object, ...]:
    """All that is written for every node alike."""
    besides = tuple(beside.version for beside in one.besides)
    return one.tier, one.priority, one.is_pinned, one.canary is None, besides


def _moved(old: Assignment, new: Assignment) -> frozenset[NodeName]:
    """As the difference of the marks, for the same frame: of many nodes a few have changed."""
    moved = set[NodeName]()
    for before, after in zip(_parts(old), _parts(new), strict=True):
        moved |= before.nodes ^ after.nodes
        moved |= (before.evictable & before.nodes) ^ (after.evictable & after.nodes)
    if old.tier is not Tier.DISK:
        moved |= (old.slower ^ new.slower) & (old.everywhere | new.everywhere)
    return frozenset(moved)


def _parts(one: Assignment) -> Iterator[Beside]:
    yield Beside(one.version, one.nodes, one.evictable)
    yield from one.besides


class _Copies:
    """A version's copies while they are gathered."""

    def __init__(self, known: Beside) -> None:
        self.version = known.version
        self.nodes, self.evictable = set(known.nodes), set(known.evictable)

    def add(self, node: NodeName, *, may_be_evicted: bool) -> None:
        """One copy more."""
        self.nodes.add(node)
        if may_be_evicted:
            self.evictable.add(node)

    def freeze(self) -> Beside:
        """All of them."""
        return Beside(self.version, frozenset(self.nodes), frozenset(self.evictable))


class _Draft:
    """An assignment that is read back, node by node. Each costs the same, however many there are.

    A leader may have died between two nodes: where they differ, one version is held beside.
    """

    def __init__(self, known: Assignment) -> None:
        self._known = known
        self._stable = _Copies(Beside(known.version, known.nodes, known.evictable))
        self._canary = _Copies(known.canary) if known.canary is not None else None
        self._held = {one.version: _Copies(one) for one in known.held}
        self._tier, self._slower = known.tier, set(known.slower)
        self._priority, self._is_pinned = known.priority, known.is_pinned

    def add(
        self, node: NodeName, ref: CacheRef, canary: Uid | None, entries: Mapping[str, EntrySpec]
    ) -> None:
        """What was written of it for one node."""

        def may_be_evicted(uid: str) -> bool:
            return uid in entries and entries[uid].evictable

        beside = {Uid(uid) for uid in ref.held_uids}
        is_placed = ref.origin is EntryOrigin.PLACEMENT
        if is_placed and ref.stable_uid != self._stable.version:
            beside.add(Uid(ref.stable_uid))
        if canary is not None and self._canary is None:
            self._canary = _Copies(Beside(canary, _NOWHERE))
        if canary is not None and self._canary is not None:
            if self._canary.version == canary:
                self._canary.add(node, may_be_evicted=may_be_evicted(canary))
            else:
                beside.add(canary)
        for uid in beside:
            copies = self._held.setdefault(uid, _Copies(Beside(uid, _NOWHERE)))
            copies.add(node, may_be_evicted=may_be_evicted(uid))
        if is_placed:
            self._note_tier(node, entries.get(self._stable.version))
            self._stable.add(node, may_be_evicted=may_be_evicted(ref.stable_uid))
            if (entry := entries.get(ref.stable_uid)) is not None:
                self._priority, self._is_pinned = entry.priority, entry.pinned

    def _note_tier(self, node: NodeName, entry: EntrySpec | None) -> None:
        """The tier as the entries of the nodes so far say it, and which of them are slower."""
        told = entry.tier if entry is not None else Tier.DISK
        if self._tier is Tier.DISK and told is not Tier.DISK:
            self._slower = set(self._stable.nodes)
        self._tier = max(self._tier, told, key=lambda one: one.speed)
        if self._tier is not Tier.DISK and told is Tier.DISK:
            self._slower.add(node)

    def freeze(self) -> Assignment:
        """The assignment as all these nodes have it."""
        stable = self._stable.freeze()
        return replace(
            self._known,
            nodes=stable.nodes,
            evictable=stable.evictable,
            tier=self._tier,
            slower=_NOWHERE if self._tier is Tier.DISK else frozenset(self._slower),
            canary=self._canary.freeze() if self._canary is not None else None,
            held=tuple(self._held[uid].freeze() for uid in sorted(self._held)),
            priority=self._priority,
            is_pinned=self._is_pinned,
        )


def _placed_canary(ref: CacheRef, entries: Mapping[str, EntrySpec]) -> Uid | None:
    """The canary, unless it is there for a pod's sake alone."""
    entry = entries.get(ref.canary_uid) if ref.canary_uid else None
    return None if entry is None or entry.origin is EntryOrigin.DEMAND else Uid(entry.uid)
