"""What the cluster's objects say of the cache, read once, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from modelcache_api.names import Condition
from modelcache_api.v1alpha1.cache_node import CacheNode, CacheNodeSpec, CacheNodeStatus
from modelcache_api.v1alpha1.model_cache import ModelCache, ModelCacheSpec, ModelCacheStatus
from modelcache_api.v1alpha1.model_version import ModelVersion, ModelVersionSpec, ModelVersionStatus
from modelcache_cli.errors import CliError
from modelcache_cli.why import Finding, TargetKind, judge_object
from modelcache_kube import (
    CACHE_NODES,
    MODEL_CACHE_QUOTAS,
    MODEL_CACHES,
    MODEL_VERSIONS,
    Forbidden,
    KubeClient,
)
from modelcache_operator.decide.world import ObjectKey

Object = Mapping[str, Any]
_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """One CacheNode."""

    name: str
    spec: CacheNodeSpec
    status: CacheNodeStatus
    finding: Finding

    @property
    def is_alive(self) -> bool:
        """True while its agent is."""
        ready = (c for c in self.status.conditions if c.type == Condition.READY)
        return any(condition.status == "True" for condition in ready)


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """One ModelVersion."""

    key: ObjectKey
    uid: str
    spec: ModelVersionSpec
    status: ModelVersionStatus
    finding: Finding


@dataclass(frozen=True, slots=True)
class SeenCache:
    """One ModelCache."""

    key: ObjectKey
    spec: ModelCacheSpec
    status: ModelCacheStatus
    finding: Finding


@dataclass(frozen=True, slots=True)
class SeenQuota:
    """One ModelCacheQuota."""

    key: ObjectKey
    finding: Finding


@dataclass(frozen=True, slots=True)
class Fleet:
    """All of it. `nodes` is None where CacheNodes may not be listed."""

    nodes: tuple[SeenNode, ...] | None
    versions: tuple[SeenVersion, ...] = ()
    caches: tuple[SeenCache, ...] = ()
    quotas: tuple[SeenQuota, ...] = ()


async def observe_fleet(kube: KubeClient, namespace: str | None) -> Fleet:
    """Nodes, and the objects of one namespace; None: of all.

    Raises:
        CliError: an object is not what this release knows.
        KubeError: what is namespaced cannot be read.
    """
    try:
        nodes: tuple[Object, ...] | None = (await kube.list(CACHE_NODES)).items
    except Forbidden:
        nodes = None
    versions = (await kube.list(MODEL_VERSIONS, namespace)).items
    caches = (await kube.list(MODEL_CACHES, namespace)).items
    quotas = (await kube.list(MODEL_CACHE_QUOTAS, namespace)).items
    return Fleet(
        None if nodes is None else _sort_nodes(nodes),
        tuple(sorted((_see_version(raw) for raw in versions), key=lambda seen: seen.key)),
        tuple(sorted((see_cache(raw) for raw in caches), key=lambda seen: seen.key)),
        tuple(
            sorted(
                (SeenQuota(_key(raw), judge_object(TargetKind.QUOTA, raw)) for raw in quotas),
                key=lambda seen: seen.key,
            )
        ),
    )


def _sort_nodes(nodes: tuple[Object, ...]) -> tuple[SeenNode, ...]:
    return tuple(sorted((see_node(raw) for raw in nodes), key=lambda seen: seen.name))


def see_node(raw: Object) -> SeenNode:
    """One CacheNode as read.

    Raises:
        CliError: it is not what this release knows.
    """
    node = parse_object(CacheNode, raw)
    return SeenNode(
        raw["metadata"]["name"],
        node.spec,
        node.status or CacheNodeStatus(),
        judge_object(TargetKind.NODE, raw),
    )


def _see_version(raw: Object) -> SeenVersion:
    version = parse_object(ModelVersion, raw)
    return SeenVersion(
        _key(raw),
        raw["metadata"]["uid"],
        version.spec,
        version.status or ModelVersionStatus(),
        judge_object(TargetKind.VERSION, raw),
    )


def see_cache(raw: Object) -> SeenCache:
    """One ModelCache as read.

    Raises:
        CliError: it is not what this release knows.
    """
    cache = parse_object(ModelCache, raw)
    return SeenCache(
        _key(raw),
        cache.spec,
        cache.status or ModelCacheStatus(),
        judge_object(TargetKind.CACHE, raw),
    )


def _key(raw: Object) -> ObjectKey:
    return ObjectKey(raw["metadata"]["namespace"], raw["metadata"]["name"])


def parse_object(model: type[_M], raw: Object) -> _M:
    """An object as read.

    Raises:
        CliError: it is not what this release knows.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        name = raw["metadata"]["name"]
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise CliError(
            f"{model.__name__} {name} is not what this release knows ({where}: "
            f"{problem['msg']}): use the kubectl-modelcache of the operator's release"
        ) from error
