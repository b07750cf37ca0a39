"""`inject`: manifests with what injection would add, for clusters where nothing injects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from modelcache_api.v1alpha1.model_cache import ModelCache
from modelcache_cli.cluster import ClusterChoice, open_cluster
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import parse_object
from modelcache_kube import MODEL_CACHES, KubeClient
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.injection import (
    InjectionSettings,
    KnownCache,
    find_cache_name,
    know_cache,
    make_injection,
)
from modelcache_operator.json_patch import add_all

Document = dict[str, Any]
# Where a kind that is no pod keeps its pod, tried in this order.
_TEMPLATES = (("spec", "jobTemplate", "spec", "template"), ("spec", "template"))


class _Plain(yaml.SafeDumper):
    """Writes what is the same twice, instead of naming it, which no manifest of people does."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - as PyYAML calls it
        return True


@dataclass(slots=True)
class Lookup:
    """ModelCaches of a cluster, each asked for once; none at all without a cluster."""

    kube: KubeClient | None
    _seen: dict[ObjectKey, KnownCache | None] = field(default_factory=dict)

    async def find(self, key: ObjectKey) -> KnownCache | None:
        """What is known of it; None if it does not exist."""
        if self.kube is None:
            return None
        if key not in self._seen:
            raw = await self.kube.get(MODEL_CACHES, key.name, key.namespace)
            found = parse_object(ModelCache, raw) if raw is not None else None
            self._seen[key] = know_cache(found.status) if found is not None else None
        return self._seen[key]


@dataclass(frozen=True, slots=True)
class Injected:
    """The documents as text, and what a person should know."""

    text: str
    notes: tuple[str, ...]


@asynccontextmanager
async def open_lookup(choice: ClusterChoice, *, offline: bool) -> AsyncIterator[tuple[Lookup, str]]:
    """The look-up and the namespace of documents that name none."""
    if offline:
        yield Lookup(None), choice.namespace or "default"
        return
    async with open_cluster(choice) as (kube, namespace):
        yield Lookup(kube), namespace


async def inject_text(
    text: str, lookup: Lookup, namespace: str, settings: InjectionSettings
) -> Injected:
    """All documents of a YAML or JSON text; those that name no ModelCache come back as they were.

    Raises:
        CliError: it is no YAML, or a document is no object.
    """
    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise CliError(f"this is no YAML: {error}") from error
    notes: list[str] = []
    done = []
    for document in documents:
        if not isinstance(document, dict):
            raise CliError("a document is no Kubernetes object: it has no kind")
        done.append(await _inject_document(document, lookup, namespace, settings, notes))
    told = yaml.dump_all(done, Dumper=_Plain, sort_keys=False, width=1000)
    return Injected(told, tuple(notes))


async def _inject_document(
    document: Document,
    lookup: Lookup,
    namespace: str,
    settings: InjectionSettings,
    notes: list[str],
) -> Document:
    if isinstance(document.get("items"), list):
        items = [
            await _inject_document(item, lookup, namespace, settings, notes)
            for item in document["items"]
        ]
        return document | {"items": items}
    for path in _pod_paths(document):
        pod = _get(document, path)
        cache = find_cache_name(pod)
        if cache is None:
            continue
        home = str((document.get("metadata") or {}).get("namespace") or namespace)
        known = await lookup.find(ObjectKey(home, cache))
        injection = make_injection(pod, known, settings)
        notes.extend(_describe(document, injection.not_injected))
        if known is None and lookup.kube is not None:
            notes.append(
                f"{_title(document)}: there is no ModelCache {cache} in namespace {home}: "
                "its pods wait until it is created, and no affinity was added"
            )
        return _set(document, path, add_all(pod, injection.operations))
    return document


def _pod_paths(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    if document.get("kind") == "Pod":
        yield ()
        return
    for path in _TEMPLATES:
        if isinstance(_get(document, path).get("spec"), Mapping):
            yield path
            return


def _get(document: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for step in path:
        inner = document.get(step)
        document = inner if isinstance(inner, Mapping) else {}
    return document


def _set(document: Mapping[str, Any], path: tuple[str, ...], value: Document) -> Document:
    if not path:
        return value
    first, *rest = path
    return {**document, first: _set(document[first], tuple(rest), value)}


def _title(document: Mapping[str, Any]) -> str:
    name = (document.get("metadata") or {}).get("name") or "without a name"
    return f"{document.get('kind')} {name}"


def _describe(document: Mapping[str, Any], refused: tuple[str, ...]) -> Iterator[str]:
    if refused:
        yield f"{_title(document)}: its own settings were kept: {', '.join(refused)}"
