"""Trimmed copies of what the API server holds, and who wants to know of their changes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeVar

from modelcache_operator.adapters.parsing import Observed, ObservedKind
from modelcache_operator.adapters.pod_index import PodIndex
from modelcache_operator.changes import Changed, Listener, View
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    PodView,
    Uid,
    Unreadable,
)

_log = logging.getLogger(__name__)
_V = TypeVar("_V", bound=View)
# An answer to our own write can arrive after the watch has told of the deletion.
_REMEMBERED_DELETIONS = 4096


class WatchCache:
    """Fed by watches, lists and the answers to our own writes; older news never replace newer.

    Belongs to one event loop. Listeners are called at once and must not fail. To them, an object
    that cannot be read any more has gone: they must ask `unreadable` before they act on that.
    """

    def __init__(self) -> None:
        self._objects: dict[ObservedKind, dict[ObjectKey, Observed]] = {
            kind: {} for kind in ObservedKind
        }
        self._versions_by_uid: dict[Uid, ObjectKey] = {}
        self._caches_by_version: dict[ObjectKey, set[ObjectKey]] = defaultdict(set)
        self._nodes_by_entry: dict[Uid, set[NodeName]] = defaultdict(set)
        self._nodes_by_suspect: dict[Uid, set[NodeName]] = defaultdict(set)
        self._pods = PodIndex()
        self._listeners: list[Listener] = []
        self._synced: set[ObservedKind] = set()
        self._gone: dict[Uid, None] = {}
        self._unread: dict[ObservedKind, dict[Uid, ObjectKey]] = {kind: {} for kind in ObservedKind}

    def subscribe(self, listener: Listener) -> None:
        """Tell the listener of every change from now on."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Tell it no more."""
        self._listeners.remove(listener)

    def observe(self, seen: Observed) -> None:
        """Take in an object. What is older than what is known is dropped; so is what is equal."""
        objects = self._objects[seen.kind]
        known = objects.get(seen.key)
        if seen.uid in self._gone or (known is not None and known.version > seen.version):
            return
        objects[seen.key] = seen
        self._note_readability(known, seen)
        old = known.view if known is not None else None
        if old is not None and known is not None and known.uid != seen.uid:
            self._tell(Changed(old, None))
            old = None
        if old != seen.view:
            self._tell(Changed(old, seen.view))

    def forget(self, kind: ObservedKind, key: ObjectKey, uid: Uid) -> None:
        """The object with that UID is gone; a successor of the same name stays."""
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED_DELETIONS:
            del self._gone[next(iter(self._gone))]
        known = self._objects[kind].get(key)
        if known is None or known.uid != uid:
            return
        del self._objects[kind][key]
        self._unread[kind].pop(uid, None)
        if known.view is not None:
            self._tell(Changed(known.view, None))

    def snapshot(self, kind: ObservedKind) -> dict[ObjectKey, Uid]:
        """Names and UIDs of what is known now."""
        return {key: seen.uid for key, seen in self._objects[kind].items()}

    def take_list(
        self,
        kind: ObservedKind,
        before: dict[ObjectKey, Uid],
        listed: AbstractSet[tuple[ObjectKey, Uid]],
    ) -> int:
        """Take in which objects a consistent list held that was begun after `before` was taken.

        What was known before and is not in the list has vanished unseen. Returns how many.
        """
        vanished = [item for item in before.items() if item not in listed]
        for key, uid in vanished:
            self.forget(kind, key, uid)
        self._synced.add(kind)
        return len(vanished)

    @property
    def is_synced(self) -> bool:
        """True once every kind has been listed."""
        return self._synced == set(ObservedKind)

    @property
    def unreadable(self) -> Unreadable:
        """What is there and not understood."""
        unread = self._unread
        return Unreadable(
            versions=unread[ObservedKind.MODEL_VERSIONS],
            caches=unread[ObservedKind.MODEL_CACHES],
            cache_nodes=_names(unread[ObservedKind.CACHE_NODES]),
            nodes=_names(unread[ObservedKind.NODES]),
            quotas=unread[ObservedKind.QUOTAS],
        )

    def version_of(self, kind: ObservedKind, key: ObjectKey) -> int | None:
        """The resourceVersion at which the object was last seen."""
        known = self._objects[kind].get(key)
        return known.version if known else None

    def cache_node(self, name: NodeName) -> CacheNodeView | None:
        """The CacheNode of that node."""
        return self._find(ObservedKind.CACHE_NODES, ObjectKey("", name), CacheNodeView)

    def nodes_of_entry(self, uid: Uid) -> Iterable[CacheNodeView]:
        """The CacheNodes whose spec names that ModelVersion."""
        return self._cache_nodes_named(self._nodes_by_entry.get(uid, ()))

    def accusers_of(self, node_uid: Uid) -> Iterable[CacheNodeView]:
        """The CacheNodes whose agents say that this Node's agent served them wrong bytes."""
        return self._cache_nodes_named(self._nodes_by_suspect.get(node_uid, ()))

    def node(self, name: NodeName) -> NodeView | None:
        """The Node of that name."""
        return self._find(ObservedKind.NODES, ObjectKey("", name), NodeView)

    def model_version(self, uid: Uid) -> ModelVersionView | None:
        """The ModelVersion with that UID."""
        key = self._versions_by_uid.get(uid)
        return self.model_version_named(key) if key else None

    def model_version_named(self, key: ObjectKey) -> ModelVersionView | None:
        """The ModelVersion of that name."""
        return self._find(ObservedKind.MODEL_VERSIONS, key, ModelVersionView)

    def model_cache(self, key: ObjectKey) -> ModelCacheView | None:
        """The ModelCache of that name."""
        return self._find(ObservedKind.MODEL_CACHES, key, ModelCacheView)

    def model_versions(self) -> Iterable[ModelVersionView]:
        """All ModelVersions."""
        return self._all(ObservedKind.MODEL_VERSIONS, ModelVersionView)

    def model_caches(self) -> Iterable[ModelCacheView]:
        """All ModelCaches."""
        return self._all(ObservedKind.MODEL_CACHES, ModelCacheView)

    def quotas(self) -> Iterable[ModelCacheQuotaView]:
        """All ModelCacheQuotas."""
        return self._all(ObservedKind.QUOTAS, ModelCacheQuotaView)

    def quotas_in(self, namespace: str) -> Iterable[ModelCacheQuotaView]:
        """The ModelCacheQuotas of a namespace, by name."""
        found = (one for one in self.quotas() if one.key.namespace == namespace)
        return sorted((one for one in found if not one.is_deleted), key=lambda one: one.key)

    def quota(self, key: ObjectKey) -> ModelCacheQuotaView | None:
        """The ModelCacheQuota of that name."""
        return self._find(ObservedKind.QUOTAS, key, ModelCacheQuotaView)

    def nodes(self) -> Iterable[NodeView]:
        """All Nodes."""
        return self._all(ObservedKind.NODES, NodeView)

    def cache_nodes(self) -> Iterable[CacheNodeView]:
        """All CacheNodes."""
        return self._all(ObservedKind.CACHE_NODES, CacheNodeView)

    def caches_of_version(self, key: ObjectKey) -> Iterable[ObjectKey]:
        """The ModelCaches whose spec names that ModelVersion."""
        return tuple(self._caches_by_version.get(key, ()))

    def pod(self, key: ObjectKey) -> PodView | None:
        """The pod of that name."""
        return self._find(ObservedKind.PODS, key, PodView)

    def pods(self) -> Iterable[PodView]:
        """All pods that name a ModelCache."""
        return self._all(ObservedKind.PODS, PodView)

    def pods_on(self, node: NodeName) -> Iterable[PodView]:
        """The pods bound to a node."""
        return self._pods_named(self._pods.on(node))

    def pods_of(self, cache: ObjectKey) -> Iterable[PodView]:
        """The pods that name the ModelCache."""
        return self._pods_named(self._pods.of(cache))

    def _cache_nodes_named(self, names: Iterable[NodeName]) -> tuple[CacheNodeView, ...]:
        found = (self.cache_node(name) for name in names)
        return tuple(node for node in found if node is not None)

    def _pods_named(self, keys: Iterable[ObjectKey]) -> tuple[PodView, ...]:
        found = (self.pod(key) for key in keys)
        return tuple(pod for pod in found if pod is not None)

    def _note_readability(self, known: Observed | None, seen: Observed) -> None:
        unread = self._unread[seen.kind]
        if known is not None:
            unread.pop(known.uid, None)
        if seen.view is not None:
            return
        unread[seen.uid] = seen.key
        if known is None or (known.uid, known.problem) != (seen.uid, seen.problem):
            _log.error(
                "cannot read %s %s, which is left alone: upgrade the operator (%s)",
                seen.kind,
                seen.key,
                seen.problem,
            )

    def _find(self, kind: ObservedKind, key: ObjectKey, view: type[_V]) -> _V | None:
        known = self._objects[kind].get(key)
        return known.view if known is not None and isinstance(known.view, view) else None

    def _all(self, kind: ObservedKind, view: type[_V]) -> tuple[_V, ...]:
        seen = self._objects[kind].values()
        return tuple(one.view for one in seen if isinstance(one.view, view))

    def _tell(self, change: Changed) -> None:
        self._index(change)
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - one listener's bug must not blind the others
                _log.exception("a listener failed; the periodic look at everything makes up for it")

    def _index(self, change: Changed) -> None:
        self._pods.note(change)
        if isinstance(change.old, ModelVersionView) and change.new is None:
            self._versions_by_uid.pop(change.old.uid, None)
        if isinstance(change.old, ModelCacheView):
            self._unindex_cache(change.old)
        _index_nodes(self._nodes_by_entry, _entries(change.old), _entries(change.new))
        _index_nodes(self._nodes_by_suspect, _suspects(change.old), _suspects(change.new))
        if isinstance(change.new, ModelVersionView):
            self._versions_by_uid[change.new.uid] = change.new.key
        if isinstance(change.new, ModelCacheView):
            for key in _version_keys(change.new):
                self._caches_by_version[key].add(change.new.key)

    def _unindex_cache(self, cache: ModelCacheView) -> None:
        for key in _version_keys(cache):
            caches = self._caches_by_version[key]
            caches.discard(cache.key)
            if not caches:
                del self._caches_by_version[key]


def _version_keys(cache: ModelCacheView) -> frozenset[ObjectKey]:
    tracks = (cache.spec.stable, cache.spec.canary)
    return frozenset(
        ObjectKey(cache.key.namespace, track.model_version) for track in tracks if track is not None
    )


def _index_nodes(
    index: dict[Uid, set[NodeName]],
    before: frozenset[tuple[Uid, NodeName]],
    after: frozenset[tuple[Uid, NodeName]],
) -> None:
    for uid, name in before - after:
        index[uid].discard(name)
        if not index[uid]:
            del index[uid]
    for uid, name in after - before:
        index[uid].add(name)


def _entries(view: View | None) -> frozenset[tuple[Uid, NodeName]]:
    if not isinstance(view, CacheNodeView):
        return frozenset()
    return frozenset((Uid(entry.uid), view.name) for entry in view.spec.entries)


def _suspects(view: View | None) -> frozenset[tuple[Uid, NodeName]]:
    if not isinstance(view, CacheNodeView) or view.status.peer is None:
        return frozenset()
    return frozenset((Uid(uid), view.name) for uid in view.status.peer.suspects)


def _names(keys: Mapping[Uid, ObjectKey]) -> frozenset[NodeName]:
    return frozenset(NodeName(key.name) for key in keys.values())
