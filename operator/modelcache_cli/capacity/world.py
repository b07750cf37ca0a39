"""Everything that a plan looks at, from files and, if asked, from a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from modelcache_api.names import Condition, EntryOrigin
from modelcache_cli.capacity.fit import PlannedNode, PlannedWorld, SizedVersion
from modelcache_cli.capacity.manifests import Manifests
from modelcache_cli.errors import CliError
from modelcache_kube import (
    CACHE_NODES,
    MODEL_CACHE_QUOTAS,
    MODEL_CACHES,
    MODEL_VERSIONS,
    NODES,
    KubeClient,
    Resource,
)
from modelcache_operator.adapters.parsing import ObservedKind, parse_object
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.quota import UNLIMITED, Limits, join_limits, read_limits
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
)

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is there already. Without a cluster, nodes alone."""

    nodes: tuple[PlannedNode, ...]
    versions: tuple[ModelVersionView, ...] = ()
    caches: tuple[ModelCacheView, ...] = ()
    assigned: Mapping[ObjectKey, frozenset[NodeName]] = field(default_factory=dict)
    canaries: Mapping[ObjectKey, frozenset[NodeName]] = field(default_factory=dict)
    quotas: tuple[ModelCacheQuotaView, ...] = ()


async def observe_cluster(kube: KubeClient) -> Surroundings:
    """The cluster's nodes with their agents, and what is placed on them."""
    nodes = await _list(kube, NODES, ObservedKind.NODES, NodeView)
    cache_nodes = await _list(kube, CACHE_NODES, ObservedKind.CACHE_NODES, CacheNodeView)
    versions = await _list(kube, MODEL_VERSIONS, ObservedKind.MODEL_VERSIONS, ModelVersionView)
    caches = await _list(kube, MODEL_CACHES, ObservedKind.MODEL_CACHES, ModelCacheView)
    quotas = await _list(kube, MODEL_CACHE_QUOTAS, ObservedKind.QUOTAS, ModelCacheQuotaView)
    by_name = {view.name: view for view in cache_nodes}
    assigned: dict[ObjectKey, frozenset[NodeName]] = {}
    canaries: dict[ObjectKey, frozenset[NodeName]] = {}
    for view in cache_nodes:
        for ref in view.spec.caches:
            key = ObjectKey(ref.namespace, ref.name)
            if ref.canary_uid is not None:
                canaries[key] = canaries.get(key, frozenset()) | {view.name}
            if ref.origin is EntryOrigin.PLACEMENT:
                assigned[key] = assigned.get(key, frozenset()) | {view.name}
    planned = tuple(
        PlannedNode(node, by_name.get(node.name), _find_liveness(by_name.get(node.name)))
        for node in nodes
    )
    return Surroundings(planned, versions, caches, assigned, canaries, quotas)


async def _list(
    kube: KubeClient, resource: Resource, kind: ObservedKind, view: type[_V]
) -> tuple[_V, ...]:
    seen = (parse_object(kind, raw).view for raw in (await kube.list(resource)).items)
    return tuple(found for found in seen if isinstance(found, view))


def _find_liveness(cache_node: CacheNodeView | None) -> Liveness:
    if cache_node is None:
        return Liveness.ABSENT
    ready = next((c for c in cache_node.status.conditions if c.type == Condition.READY), None)
    return Liveness.ALIVE if ready is not None and ready.status == "True" else Liveness.LOST


def join_worlds(
    there: Surroundings,
    manifests: Manifests,
    find_size: Callable[[ModelVersionView], int | None],
    default_limits: Limits = UNLIMITED,
) -> PlannedWorld:
    """The cluster as it would be once the manifests are applied.

    The higher priority is placed first, then what is there; what is there keeps its nodes.

    Raises:
        CliError: the size of a version that a ModelCache wants is not known.
    """
    versions = {view.key: view for view in (*manifests.versions, *there.versions)}
    known = {view.key: view for view in there.caches}
    given = {view.key: view for view in manifests.caches}
    existing = tuple(given.pop(view.key, view) for view in there.caches)
    joined = (_continue(view, known.get(view.key)) for view in (*existing, *given.values()))
    caches = tuple(sorted(joined, key=lambda view: -view.spec.priority.rank))
    former = {
        view.key: _stable_key(known[view.key])
        for view in caches
        if view.key in known and _stable_key(known[view.key]) != _stable_key(view)
    }
    wanted = {key for view in caches for key in _version_keys(view)}
    wanted |= {key for key in former.values() if key in versions}
    sizes = {key: find_size(versions[key]) for key in sorted(wanted & versions.keys())}
    unknown = [str(key) for key, size in sizes.items() if size is None]
    if unknown:
        raise CliError(_ask_for_sizes(unknown))
    sized = {
        key: SizedVersion(key, versions[key].uid, size)
        for key, size in sizes.items()
        if size is not None
    }
    return PlannedWorld(
        there.nodes,
        sized,
        caches,
        there.assigned,
        {key: nodes for key, nodes in there.canaries.items() if _keeps_canary(key, known, caches)},
        {key: sized[version] for key, version in former.items() if version in sized},
        _join_quotas(there.quotas, manifests.quotas),
        default_limits,
    )


def _continue(view: ModelCacheView, known: ModelCacheView | None) -> ModelCacheView:
    """What is applied to a ModelCache that is there changes its spec alone.

    Among equal nodes its uid decides, and its status says how far a rollout is.
    """
    return view if known is None else replace(view, uid=known.uid, status=known.status)


def _stable_key(view: ModelCacheView) -> ObjectKey:
    return ObjectKey(view.key.namespace, view.spec.stable.model_version)


def _canary_key(view: ModelCacheView | None) -> ObjectKey | None:
    canary = view.spec.canary if view is not None else None
    if view is None or canary is None:
        return None
    return ObjectKey(view.key.namespace, canary.model_version)


def _version_keys(view: ModelCacheView) -> Iterable[ObjectKey]:
    canary = _canary_key(view)
    return (_stable_key(view),) if canary is None else (_stable_key(view), canary)


def _keeps_canary(
    key: ObjectKey, known: Mapping[ObjectKey, ModelCacheView], caches: Iterable[ModelCacheView]
) -> bool:
    """True if the copies of the canary that are there are of the one that is wanted."""
    wanted = next((view for view in caches if view.key == key), None)
    return wanted is not None and _canary_key(wanted) == _canary_key(known.get(key))


def _join_quotas(
    there: Iterable[ModelCacheQuotaView], given: Iterable[ModelCacheQuotaView]
) -> Mapping[str, Limits]:
    quotas = {quota.key: quota for quota in (*there, *given)}
    by_namespace: dict[str, list[Limits]] = {}
    for key in sorted(quotas):
        limits = read_limits(quotas[key].spec, f"ModelCacheQuota {key.name}")
        by_namespace.setdefault(key.namespace, []).append(limits)
    return {namespace: join_limits(limits) for namespace, limits in by_namespace.items()}


def _ask_for_sizes(unknown: Iterable[str]) -> str:
    names = list(unknown)
    first = names[0].rpartition("/")[2]
    return (
        f"the size of {', '.join(names[:10])}{' and others' if len(names) > 10 else ''} is not "  # noqa: PLR2004
        f"known: give --size {first}=16Gi, or --catalog with the model's name"
    )
