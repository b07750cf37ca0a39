"""Which keys to look at after a change. The only place that knows what depends on what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from modelcache_api.names import NODE_LABEL_PREFIX, EntryState, Track
from modelcache_api.v1alpha1.cache_node import EntryStatus
from modelcache_operator.changes import Changed, View
from modelcache_operator.decide.entry_news import is_loss
from modelcache_operator.decide.events import find_condition
from modelcache_operator.decide.node_status import find_short_of_room, list_damaged
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
)
from modelcache_operator.keys import (
    SWEEP,
    Key,
    cache_key,
    node_key,
    pod_key,
    quota_key,
    route_key,
    version_key,
)
from modelcache_operator.memory import Memory
from modelcache_operator.ports.world import ObservedWorld

# Reports of many nodes about one ModelCache come in bursts: one look at it answers all of them.
_REPORT_SECONDS: Final = 0.5
# Those of more nodes come over a longer time, and each look costs more: these are worth one.
_REPORTS_A_SECOND: Final = 200
# Where all ModelCaches come to nodes at once, each look at one writes a status, and takes the books
# of its nodes: a quarter of a core at that rate.
_LOOKS_A_SECOND: Final = 50
_COPIES_A_SECOND: Final = 6000
# However many there are, people see after that time how far they are.
_SETTLED_SECONDS: Final = 10.0
# What a rollout may wait for, of which each look costs as much.
_CANARY_SECONDS: Final = 1.0
# A node that appears or changes may offer room to every ModelCache that lacks some.
_ROOM_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 2.0


class Adder(Protocol):
    """The part of the work queue that routing needs."""

    def add(self, key: Key, *, after_seconds: float = 0.0, is_urgent: bool = False) -> None:
        """Look at the key, at the latest after that time, and before all others if urgent."""


class Router:
    """Turns changes into keys. Calls nothing that can wait."""

    def __init__(self, world: ObservedWorld, memory: Memory, queue: Adder) -> None:
        self._world = world
        self._memory = memory
        self._queue = queue

    def look_at_everything(self) -> None:
        """Every object is looked at once: at the beginning of a term, and now and then."""
        for version in self._world.model_versions():
            self._queue.add(version_key(version.key))
        for key in self._in_turn(
            {cache.key for cache in self._world.model_caches()}
            | set(self._memory.assignments.caches())
        ):
            self._queue.add(cache_key(key))
        self.look_at_routes()
        quotas = {quota.key for quota in self._world.quotas()}
        bare = {cache.key.namespace for cache in self._world.model_caches()}
        bare -= {key.namespace for key in quotas}
        for key in sorted(quotas | {ObjectKey(namespace, "") for namespace in bare}):
            self._queue.add(quota_key(key))
        for pod in self._world.pods():
            self._look_at_pod(pod)
        for name in {node.name for node in self._world.nodes()} | {
            node.name for node in self._world.cache_nodes()
        }:
            self._queue.add(node_key(name))
        self._queue.add(SWEEP, after_seconds=_SWEEP_SECONDS)

    def on_change(self, change: Changed) -> None:
        """Listens to the watch cache."""
        match change.view:
            case ModelVersionView() as version:
                self._version_changed(version, change)
            case ModelCacheView() as cache:
                self._queue.add(cache_key(cache.key), is_urgent=_takes_back(change))
                if _meaning(change.old) != _meaning(change.new):
                    self._look_at_pods_of(cache.key)
                self._look_at_rivals(cache, change)
                self.on_charges((cache.key.namespace,))
            case ModelCacheQuotaView() as quota:
                self._quota_changed(quota, change)
            case PodView():
                self._pod_changed(change)
            case NodeView() as node:
                self._node_changed(node.name, change)
            case CacheNodeView() as cache_node:
                self._cache_node_changed(cache_node.name, change)

    def look_at_routes(self) -> None:
        """Every HTTPRoute that a ModelCache names may be another than it was."""
        for cache in self._world.model_caches():
            if _route_name(cache) is not None:
                self._queue.add(route_key(cache.key))

    def on_route(self, route: ObjectKey) -> None:
        """An HTTPRoute has changed, come or gone."""
        for cache in self._world.model_caches():
            if cache.key.namespace == route.namespace and _route_name(cache) == route.name:
                self._queue.add(route_key(cache.key))

    def on_decided(self, cache: ModelCacheView, *, is_back: bool = False) -> None:
        """What the ModelCache wants of its HTTPRoute may be new; `is_back` if it is less."""
        if self._memory.traffic.is_route_due(cache):
            self._queue.add(route_key(cache.key), is_urgent=is_back)

    def on_weight(self, names: Iterable[NodeName], *, is_back: bool) -> None:
        """These nodes' agents are to hear of another weight; `is_back` if it is a lower one."""
        for name in names:
            self._queue.add(node_key(name), is_urgent=is_back)

    def on_gate(self, key: Key) -> None:
        """The query of a ModelCache's gate has been answered: traffic may have to go back."""
        self._queue.add(key, is_urgent=True)

    def on_liveness(self, names: Iterable[NodeName]) -> None:
        """These nodes' agents have come, fallen silent or gone."""
        changed = tuple(names)
        self._memory.books.invalidate(changed)
        for name in changed:
            self._queue.add(node_key(name))
            self._look_at_caches_on(name, _REPORT_SECONDS)
        if changed:
            self._look_at_wishes_for_nodes()

    def on_nodes_reassigned(
        self, names: Iterable[NodeName], *, frees_room: bool, is_turn: bool = False
    ) -> None:
        """A ModelCache has come to these nodes or left them; `is_turn` if its traffic turns."""
        changed = tuple(names)
        self._memory.books.invalidate(changed)
        for name in changed:
            self._queue.add(node_key(name), is_urgent=is_turn)
        if changed and frees_room:
            self.look_at_unsatisfied()

    def on_read_back(self, name: NodeName, caches: Iterable[ObjectKey]) -> None:
        """These ModelCaches turn out to have had copies on the node all the time."""
        self._memory.books.invalidate((name,))
        for key in caches:
            self._queue.add(cache_key(key))

    def on_node_gone(self, name: NodeName, caches: Iterable[ObjectKey]) -> None:
        """A node is gone for good, and these ModelCaches had copies there."""
        self._memory.books.invalidate((name,))
        for key in caches:
            self._queue.add(cache_key(key))

    def on_demand(self, caches: Iterable[ObjectKey]) -> None:
        """Pods have come to read these ModelCaches where they are not placed, or gone."""
        changed = tuple(caches)
        for key in changed:
            self._queue.add(cache_key(key), after_seconds=_REPORT_SECONDS)
        self.on_charges(key.namespace for key in changed)

    def on_charges(self, namespaces: Iterable[str]) -> None:
        """What these namespaces hold, or are refused, has changed: their quotas tell of it.

        A namespace without one has the default, which is no object and so has no name.
        """
        for namespace in frozenset(namespaces):
            own = [quota.key for quota in self._world.quotas_in(namespace)]
            for key in own or [ObjectKey(namespace, "")]:
                self._queue.add(quota_key(key), after_seconds=_REPORT_SECONDS)

    def look_at_unsatisfied(self) -> None:
        """There may be room for those who lack some."""
        for key in self._in_turn(self._memory.unsatisfied):
            self._queue.add(cache_key(key), after_seconds=_ROOM_SECONDS)

    def look_at_withheld(self, caches: Iterable[ObjectKey]) -> None:
        """Nobody fills any more, or somebody lacks room: nodes must hear of these."""
        for key in self._memory.stop_withholding(caches):
            self._queue.add(cache_key(key), after_seconds=_REPORT_SECONDS)

    def _look_at_wishes_for_nodes(self) -> None:
        """There may be a node for those who lack room, and for those who want every one."""
        for key in self._in_turn(self._memory.unsatisfied | self._memory.everywhere):
            self._queue.add(cache_key(key), after_seconds=_ROOM_SECONDS)

    def _in_turn(self, keys: Iterable[ObjectKey]) -> list[ObjectKey]:
        """Whom room goes to first: the higher priority, then who came first."""

        def turn(key: ObjectKey) -> tuple[int, str, ObjectKey]:
            cache = self._world.model_cache(key)
            if cache is None:
                return 0, "", key
            return -cache.spec.priority.rank, cache.created_at, key

        return sorted(keys, key=turn)

    def look_at_dependants(self, version: ModelVersionView) -> None:
        """A ModelVersion's status has changed: whoever names or holds it must know."""
        for key in self._world.caches_of_version(version.key):
            self._queue.add(cache_key(key))
            self._look_at_pods_of(key)
        for name in self._memory.holders(version.uid):
            self._memory.books.invalidate((name,))
            self._queue.add(node_key(name))

    def _pod_changed(self, change: Changed) -> None:
        old = change.old if isinstance(change.old, PodView) else None
        new = change.new if isinstance(change.new, PodView) else None
        for pod in (old, new):
            if pod is not None and pod.node is not None:
                self._queue.add(node_key(pod.node))
            if pod is not None:
                self._look_at_pod(pod)
        is_news = _rollout_traits(old) != _rollout_traits(new)
        for pod in (old, new):
            if is_news and pod is not None and pod.track == Track.CANARY:
                is_worse = old is not None and old.is_ready and not (new and new.is_ready)
                self._queue.add(
                    cache_key(pod.cache), after_seconds=_REPORT_SECONDS, is_urgent=is_worse
                )

    def _look_at_rivals(self, cache: ModelCacheView, change: Changed) -> None:
        """Who names the same HTTPRoute may have a say in it now."""
        before, after = _route_claim(change.old), _route_claim(change.new)
        if before != after:
            for name in {before[1], after[1]} - {None}:
                self.on_route(ObjectKey(cache.key.namespace, str(name)))

    def _look_at_pods_of(self, cache: ObjectKey) -> None:
        for pod in self._world.pods_of(cache):
            self._look_at_pod(pod)
            if pod.node is not None:
                self._queue.add(node_key(pod.node))

    def _look_at_pod(self, pod: PodView) -> None:
        """Most pods need none of it: their node's key does what they want."""
        if pod.is_gated or (not pod.is_over and self._world.model_cache(pod.cache) is None):
            self._queue.add(pod_key(pod.key))

    def _quota_changed(self, quota: ModelCacheQuotaView, change: Changed) -> None:
        """What is granted concerns all of the namespace; what is reported does not."""
        self._queue.add(quota_key(quota.key))
        if _granted(change.old) == _granted(change.new):
            return
        caches = (cache.key for cache in self._world.model_caches())
        for key in self._in_turn(key for key in caches if key.namespace == quota.key.namespace):
            self._queue.add(cache_key(key))
        for node in self._memory.demands.refused_nodes(quota.key.namespace):
            self._queue.add(node_key(node))

    def _version_changed(self, version: ModelVersionView, change: Changed) -> None:
        if change.new is None:
            self._queue.add(SWEEP, after_seconds=_SWEEP_SECONDS)
        else:
            self._queue.add(version_key(version.key))
        if _traits_for_dependants(change.old) != _traits_for_dependants(change.new):
            self.look_at_dependants(version)

    def _node_changed(self, name: NodeName, change: Changed) -> None:
        old = change.old if isinstance(change.old, NodeView) else None
        new = change.new if isinstance(change.new, NodeView) else None
        self._memory.books.invalidate((name,))
        has_news = _placement_traits(old) != _placement_traits(new)
        # What an agent that is there labels is its own business.
        if has_news or not self._memory.agents.is_heard(name):
            self._queue.add(node_key(name))
        if has_news:
            self._look_at_caches_on(name, _REPORT_SECONDS)
            self._look_at_wishes_for_nodes()

    def _cache_node_changed(self, name: NodeName, change: Changed) -> None:
        old = change.old if isinstance(change.old, CacheNodeView) else None
        new = change.new if isinstance(change.new, CacheNodeView) else None
        self._memory.books.invalidate((name,))
        if new is None:
            # Mostly its Node is gone too, and the other watch has not told yet: do not revive it.
            self._queue.add(node_key(name), after_seconds=_ROOM_SECONDS)
        elif old is None or _node_matters(old) != _node_matters(new):
            self._queue.add(node_key(name))
        self._look_at_suspects(_suspects(old) ^ _suspects(new))
        before, after = _entries(old), _entries(new)
        moved = {uid for uid in before.keys() | after.keys() if before.get(uid) != after.get(uid)}
        lost = {uid for uid in moved if is_loss(before.get(uid), after.get(uid))}
        self._look_at_reported(name, moved, lost)
        self._look_at_room(name, old, new)
        for uid in moved:
            if _verified_content(before.get(uid)) != _verified_content(after.get(uid)):
                self._look_at_version(uid)
        if _canary_pods(old) != _canary_pods(new):
            for pod in self._world.pods_on(name):
                if pod.track == Track.CANARY:
                    self._queue.add(cache_key(pod.cache), after_seconds=_REPORT_SECONDS)
        has_room = old is None or new is None or _tiers(old) != _tiers(new)
        if has_room and any(self._world.pods_on(name)):
            self._queue.add(node_key(name))
        if has_room or any(_is_evicted(after.get(uid)) for uid in moved):
            is_new = _capacities(old) != _capacities(new)
            (self._look_at_wishes_for_nodes if is_new else self.look_at_unsatisfied)()

    def _look_at_room(
        self, name: NodeName, old: CacheNodeView | None, new: CacheNodeView | None
    ) -> None:
        """The node's agent lacks room, or has been told what it may give up."""
        short = find_short_of_room(new)
        self._memory.note_room(name, is_short=bool(short))
        if new is None or old is None:
            return
        if short - find_short_of_room(old):
            self.look_at_withheld(self._memory.assignments.on(name))
        if self._memory.unsatisfied and _evictable(new) - _evictable(old):
            self.look_at_unsatisfied()

    def _look_at_suspects(self, uids: frozenset[Uid]) -> None:
        if uids:
            for node in self._world.nodes():
                if node.uid in uids:
                    self._queue.add(node_key(node.name))

    def _look_at_version(self, uid: Uid) -> None:
        version = self._world.model_version(uid)
        if version is not None:
            copies = max(
                map(self._copies_of, self._world.caches_of_version(version.key)), default=0
            )
            is_known = version.status.content_digest is not None
            # Once its content is known, nothing but a count of nodes moves.
            seconds = self._settling_seconds(copies) * 2 if is_known else _REPORT_SECONDS / 2
            self._queue.add(version_key(version.key), after_seconds=seconds)

    def _look_at_caches_on(self, name: NodeName, seconds: float) -> None:
        for key in self._memory.assignments.on(name):
            self._queue.add(cache_key(key), after_seconds=seconds)

    def _look_at_reported(self, name: NodeName, moved: set[Uid], lost: set[Uid]) -> None:
        """How far copies beyond those that pods need already are may be told later.

        Not so that a copy is lost, for traffic may have to go back; what a rollout waits for is
        looked at sooner.
        """
        if not moved:
            return
        assignments = self._memory.assignments
        for key in assignments.on(name):
            assignment = assignments.of(key)
            if assignment is None or not assignment.versions & moved:
                continue
            is_lost, has_canary = bool(assignment.versions & lost), assignment.canary is not None
            seconds = _REPORT_SECONDS
            if not is_lost and self._is_ready(key):
                seconds = self._settling_seconds(len(assignment.nodes))
                if assignment.canary is not None and assignment.canary.version in moved:
                    seconds = min(seconds, _CANARY_SECONDS)
            self._queue.add(cache_key(key), after_seconds=seconds, is_urgent=is_lost and has_canary)

    def _settling_seconds(self, copies: int) -> float:
        """How long reports about one of so many copies may wait for others."""
        caches = len(self._memory.assignments)
        looks = max(caches / _LOOKS_A_SECOND, caches * copies / _COPIES_A_SECOND)
        return min(_SETTLED_SECONDS, max(_REPORT_SECONDS, copies / _REPORTS_A_SECOND, looks))

    def _copies_of(self, cache: ObjectKey) -> int:
        assignment = self._memory.assignments.of(cache)
        return len(assignment.nodes) if assignment is not None else 0

    def _is_ready(self, key: ObjectKey) -> bool:
        cache = self._world.model_cache(key)
        ready = find_condition(cache.status.conditions) if cache is not None else None
        return ready is not None and ready.status == "True"


def _traits_for_dependants(view: View | None) -> object:
    """All but what moves by itself and concerns nobody else.

    Of the spec only what decides whether the bytes are wanted.
    """
    if not isinstance(view, ModelVersionView):
        return None
    status = view.status.model_copy(update={"nodes": None, "last_check_time": None})
    return view.uid, view.is_deleted, view.spec.digest, view.spec.on_source_gone, status


def _meaning(view: View | None) -> object:
    """Which versions a ModelCache stands for, and in which tier pods want them."""
    if not isinstance(view, ModelCacheView):
        return None
    canary = view.spec.canary
    name = None if canary is None else canary.model_version
    spec = view.spec
    return view.uid, view.is_deleted, spec.stable, name, spec.tier, spec.priority


def _takes_back(change: Changed) -> bool:
    """True if the user wants another stable version, or less of the canary than before."""
    old, new = change.old, change.new
    if not isinstance(old, ModelCacheView) or not isinstance(new, ModelCacheView):
        return False
    was, became = old.spec.canary, new.spec.canary
    if was is None or became is None or was.model_version != became.model_version:
        return was is not None or old.spec.stable != new.spec.stable
    return became.weight < was.weight or old.spec.stable != new.spec.stable


def _granted(view: View | None) -> object:
    return (view.spec, view.is_deleted) if isinstance(view, ModelCacheQuotaView) else None


def _route_name(cache: ModelCacheView) -> str | None:
    ref = cache.spec.rollout.http_route_ref if cache.spec.rollout else None
    return None if ref is None else ref.name


def _route_claim(view: View | None) -> tuple[object, str | None]:
    """What a ModelCache says of its HTTPRoute, and the route's name."""
    if not isinstance(view, ModelCacheView) or view.is_deleted or view.spec.rollout is None:
        return None, None
    return view.spec.rollout.http_route_ref, _route_name(view)


def _rollout_traits(pod: PodView | None) -> object:
    """What a rollout sees of a pod."""
    warm_up = pod and (pod.is_cold, pod.warm_up_failure)
    is_going = pod and (pod.is_over, pod.is_terminating)
    return pod and (pod.uid, pod.cache, pod.track, is_going, pod.is_ready, warm_up)


def _placement_traits(node: NodeView | None) -> object:
    if node is None:
        return None
    labels = {k: v for k, v in node.labels.items() if not k.startswith(NODE_LABEL_PREFIX)}
    states = node.is_unschedulable, node.is_ready, node.has_disk_pressure, node.is_deleted
    return node.uid, labels, node.taints, *states


def _node_matters(node: CacheNodeView) -> object:
    """Spec and conditions, and what a condition tells of entries and tiers."""
    status = node.status
    told = (*(tier.pressure for tier in status.tiers), status.host_unfit)
    return node.uid, node.spec, status.conditions, list_damaged(node), told


def _suspects(node: CacheNodeView | None) -> frozenset[Uid]:
    peer = None if node is None else node.status.peer
    return frozenset() if peer is None else frozenset(map(Uid, peer.suspects))


def _entries(node: CacheNodeView | None) -> dict[Uid, EntryStatus]:
    return {Uid(entry.uid): entry for entry in node.status.entries} if node else {}


def _canary_pods(node: CacheNodeView | None) -> object:
    return node.status.canary_pods if node else ()


def _tiers(node: CacheNodeView) -> object:
    return [
        (tier.name, tier.capacity_bytes, tier.pending_release_bytes, tier.pressure is None)
        for tier in node.status.tiers
    ]


def _evictable(node: CacheNodeView) -> frozenset[str]:
    return frozenset(entry.uid for entry in node.spec.entries if entry.evictable)


def _capacities(node: CacheNodeView | None) -> object:
    return node and [(tier.name, tier.capacity_bytes) for tier in node.status.tiers]


def _verified_content(entry: EntryStatus | None) -> object:
    if entry is None:
        return None
    return entry.content_digest, entry.state is EntryState.CACHED, entry.tier


def _is_evicted(entry: EntryStatus | None) -> bool:
    return entry is not None and entry.state is EntryState.EVICTED
