"""Manifests and files of nodes, from YAML to views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from modelcache_api.names import (
    KIND_MODEL_CACHE,
    KIND_MODEL_CACHE_QUOTA,
    KIND_MODEL_VERSION,
    Tier,
)
from modelcache_api.quantities import parse_bytes
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheNodeStatus, TierStatus
from modelcache_api.v1alpha1.model_cache import TaintEffect
from modelcache_cli.capacity.fit import PlannedNode
from modelcache_cli.errors import CliError
from modelcache_operator.adapters.parsing import ObservedKind, parse_object
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.quota import UNLIMITED, Limits, parse_default_quota
from modelcache_operator.decide.world import (
    CacheNodeView,
    ModelCacheQuotaView,
    ModelCacheView,
    ModelVersionView,
    NodeName,
    NodeView,
    ObjectKey,
    TaintView,
    Uid,
)

_KINDS: Final = {
    KIND_MODEL_VERSION: ObservedKind.MODEL_VERSIONS,
    KIND_MODEL_CACHE: ObservedKind.MODEL_CACHES,
    KIND_MODEL_CACHE_QUOTA: ObservedKind.QUOTAS,
}
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Manifests:
    """What files hold of ours, in their order; of the rest, how much there is."""

    versions: tuple[ModelVersionView, ...]
    caches: tuple[ModelCacheView, ...]
    others: int
    quotas: tuple[ModelCacheQuotaView, ...] = ()


def read_manifests(paths: Iterable[Path], namespace: str) -> Manifests:
    """The ModelVersions, ModelCaches and quotas of files, and of the files in folders.

    Raises:
        CliError: a file cannot be read, or a document of ours is not what the API takes.
    """
    versions: list[ModelVersionView] = []
    caches: list[ModelCacheView] = []
    quotas: list[ModelCacheQuotaView] = []
    others = 0
    for path in _list_files(paths):
        for raw in _read_documents(path):
            kind = _KINDS.get(str(raw.get("kind")))
            if kind is None:
                others += 1
                continue
            view = _parse(path, kind, raw, namespace)
            if isinstance(view, ModelVersionView):
                versions.append(view)
            elif isinstance(view, ModelCacheQuotaView):
                quotas.append(view)
            else:
                caches.append(view)
    return Manifests(tuple(versions), tuple(caches), others, tuple(quotas))


def _list_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
        else:
            yield path


def _read_documents(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise CliError(f"{path} is no YAML: {error}") from error
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            listed = document.get("items") or ()
            for item in listed if isinstance(listed, list | tuple) else (listed,):
                yield _check(path, item)
        elif document is not None:
            yield _check(path, document)


def _check(path: Path, document: object) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise CliError(f"{path} holds something that is no manifest")
    return document


def _parse(
    path: Path, kind: ObservedKind, raw: Mapping[str, Any], namespace: str
) -> ModelVersionView | ModelCacheView | ModelCacheQuotaView:
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise CliError(f"{path}: a {raw['kind']} has no metadata.name")
    key = ObjectKey(metadata.get("namespace") or namespace, str(metadata["name"]))
    known = {"uid": f"{kind}/{key}", **metadata, "namespace": key.namespace}
    observed = parse_object(kind, {**raw, "metadata": known})
    if not isinstance(observed.view, ModelVersionView | ModelCacheView | ModelCacheQuotaView):
        problem = " ".join(observed.problem.split())
        raise CliError(f"{path}: {raw['kind']} {key} is not what the API takes: {problem}")
    return observed.view


def _parse_bytes(value: object) -> int:
    return parse_bytes(str(value))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Taint(_Part):
    key: Annotated[str, Field(min_length=1)]
    value: str = ""
    effect: TaintEffect


class _Node(_Part):
    name: Annotated[str, Field(min_length=1)]
    count: Annotated[int, Field(ge=1, le=5000)] = 1
    disk: Annotated[int, BeforeValidator(_parse_bytes), Field(gt=0)]
    host: Annotated[int, BeforeValidator(_parse_bytes), Field(ge=0)] = 0
    gpu: Annotated[int, BeforeValidator(_parse_bytes), Field(ge=0)] = 0
    labels: dict[str, str] = Field(default_factory=dict)
    taints: list[_Taint] = Field(default_factory=list)


class _Nodes(_Part):
    nodes: Annotated[list[_Node], Field(min_length=1)]


def read_nodes(path: Path) -> tuple[PlannedNode, ...]:
    """Nodes that need not exist, from a file.

    Raises:
        CliError: the file cannot be read, or says what is not understood.
    """
    documents = list(_read_documents(path))
    try:
        parsed = _Nodes.model_validate(documents[0] if len(documents) == 1 else {})
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise CliError(
            f"{path}: {where}: {problem['msg']}; write nodes: as a list of name, disk, and, if "
            "they matter, host, gpu, count, labels and taints"
        ) from error
    made = [node for group in parsed.nodes for node in _make_nodes(group)]
    if len({planned.node.name for planned in made}) < len(made):
        raise CliError(f"{path} names a node twice")
    return tuple(made)


def read_default_quota(path: Path | None) -> Limits:
    """The quota of namespaces that have none; without a file they have no limit.

    Raises:
        CliError: the file cannot be read, or is no quota.
    """
    if path is None:
        return UNLIMITED
    documents = list(_read_documents(path))
    try:
        return parse_default_quota(documents[0] if documents else None)
    except ValueError as error:
        raise CliError(f"{path}: {error}") from error


def _make_nodes(group: _Node) -> Iterator[PlannedNode]:
    names = (
        [group.name] if group.count == 1 else [f"{group.name}-{n + 1}" for n in range(group.count)]
    )
    for name in names:
        node = NodeView(
            NodeName(name),
            Uid(name),
            group.labels,
            tuple(TaintView(taint.key, taint.value, taint.effect) for taint in group.taints),
        )
        tiers = tuple(
            TierStatus(name=tier, capacity_bytes=size, used_bytes=0)
            for tier, size in (
                (Tier.DISK, group.disk),
                (Tier.HOST, group.host),
                (Tier.GPU, group.gpu),
            )
            if size
        )
        cache_node = CacheNodeView(
            node.name, node.uid, CacheNodeSpec(node_uid=name), CacheNodeStatus(tiers=tiers)
        )
        yield PlannedNode(node, cache_node, Liveness.ALIVE)
