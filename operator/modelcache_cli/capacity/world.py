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
    MODEL_CACHES,
    MODEL_VERSIONS,
    NODES,
    KubeClient,
    Resource,
)
from modelcache_operator.adapters.parsing import ObservedKind, parse_object
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    Uid,
)

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is there already. Without a cluster, nodes alone."""

    nodes: tuple[PlannedNode, ...]
    versions: tuple[ModelVersionView, ...] = ()
    caches: tuple[ModelCacheView, ...] = ()
    assigned: Mapping[ObjectKey, frozenset[NodeName]] = field(default_factory=dict)


async def observe_cluster(kube: KubeClient) -> Surroundings:
    """The cluster's nodes with their agents, and what is placed on them."""
    nodes = await _list(kube, NODES, ObservedKind.NODES, NodeView)
    cache_nodes = await _list(kube, CACHE_NODES, ObservedKind.CACHE_NODES, CacheNodeView)
    versions = await _list(kube, MODEL_VERSIONS, ObservedKind.MODEL_VERSIONS, ModelVersionView)
    caches = await _list(kube, MODEL_CACHES, ObservedKind.MODEL_CACHES, ModelCacheView)
    by_name = {view.name: view for view in cache_nodes}
    assigned: dict[ObjectKey, frozenset[NodeName]] = {}
    for view in cache_nodes:
        for ref in view.spec.caches:
            if ref.origin is EntryOrigin.PLACEMENT:
                key = ObjectKey(ref.namespace, ref.name)
                assigned[key] = assigned.get(key, frozenset()) | {view.name}
    planned = tuple(
        PlannedNode(node, by_name.get(node.name), _find_liveness(by_name.get(node.name)))
        for node in nodes
    )
    return Surroundings(planned, versions, caches, assigned)


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
    there: Surroundings, manifests: Manifests, find_size: Callable[[ModelVersionView], int | None]
) -> PlannedWorld:
    """The cluster as it would be once the manifests are applied. What is there is placed first.

    Raises:
        CliError: the size of a version that a ModelCache wants is not known.
    """
    versions = {view.key: view for view in (*manifests.versions, *there.versions)}
    uids = {view.key: view.uid for view in there.caches}
    given = {view.key: view for view in manifests.caches}
    existing = tuple(given.pop(view.key, view) for view in there.caches)
    caches = tuple(_with_uid(view, uids) for view in (*existing, *given.values()))
    wanted = {ObjectKey(view.key.namespace, view.spec.stable.model_version) for view in caches}
    sizes = {key: find_size(versions[key]) for key in sorted(wanted & versions.keys())}
    unknown = [str(key) for key, size in sizes.items() if size is None]
    if unknown:
        raise CliError(_ask_for_sizes(unknown))
    sized = {
        key: SizedVersion(key, versions[key].uid, size)
        for key, size in sizes.items()
        if size is not None
    }
    return PlannedWorld(there.nodes, sized, caches, there.assigned)


def _with_uid(view: ModelCacheView, uids: Mapping[ObjectKey, Uid]) -> ModelCacheView:
    """Among equal nodes a ModelCache's uid decides: that of the one which is there."""
    return replace(view, uid=uids.get(view.key, view.uid))


def _ask_for_sizes(unknown: Iterable[str]) -> str:
    names = list(unknown)
    first = names[0].rpartition("/")[2]
    return (
        f"the size of {', '.join(names[:10])}{' and others' if len(names) > 10 else ''} is not "  # noqa: PLR2004
        f"known: give --size {first}=16Gi, or --catalog with the model's name"
    )
