"""`new-version`: a ModelVersion for the bytes that the source holds now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from modelcache_api.limits import MAX_NAME_LENGTH
from modelcache_api.names import API_VERSION, KIND_MODEL_VERSION
from modelcache_cli.errors import CliError
from modelcache_kube import MODEL_VERSIONS, KubeClient
from modelcache_operator.decide.source_check import names_commit
from modelcache_operator.decide.world import ObjectKey

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Labels by which tools know what is theirs: they would take the copy for it, and delete it.
_OWNERS: Final = re.compile(
    r"app\.kubernetes\.io/(instance|managed-by)|[^/]*(argoproj\.io|fluxcd\.io|helm\.sh)/.*"
)


@dataclass(frozen=True, slots=True)
class NewVersion:
    """The document, and what a person should know of it."""

    document: dict[str, Any]
    notes: tuple[str, ...]


async def fetch_new_version(kube: KubeClient, key: ObjectKey, name: str) -> NewVersion:
    """A copy of the ModelVersion under another name, which resolves anew once it is applied.

    Raises:
        CliError: there is nothing to copy, or the name cannot be used.
    """
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise CliError(
            f"{name!r} cannot be the name of a ModelVersion: write lower-case letters, digits, "
            f"and - or . in between, at most {MAX_NAME_LENGTH} characters"
        )
    found = await fetch_version(kube, key)
    if await kube.get(MODEL_VERSIONS, name, key.namespace) is not None:
        raise CliError(
            f"there is a ModelVersion {name!r} in namespace {key.namespace!r} already, and a "
            "version never changes: give another name with --as"
        )
    return copy_version(found, name)


async def fetch_version(kube: KubeClient, key: ObjectKey) -> Mapping[str, Any]:
    """The ModelVersion as it is.

    Raises:
        CliError: there is none.
    """
    found = await kube.get(MODEL_VERSIONS, key.name, key.namespace)
    if found is None:
        raise CliError(
            f"there is no ModelVersion {key.name!r} in namespace {key.namespace!r}; "
            "`kubectl get modelversions --all-namespaces` lists them"
        )
    return found


def copy_version(found: Mapping[str, Any], name: str) -> NewVersion:
    """Spec and the user's own labels; a pin belongs to the old bytes and is left out."""
    metadata = found["metadata"]
    labels = {
        key: value
        for key, value in (metadata.get("labels") or {}).items()
        if not _OWNERS.fullmatch(key)
    }
    spec = dict(found["spec"])
    notes = []
    if spec.pop("digest", None) is not None:
        notes.append("spec.digest was left out: it pins the bytes of the old version")
    uri = spec["source"]["uri"]
    if names_commit(uri):
        notes.append(f"{uri} names a commit, so the new version has the same bytes: change it")
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND_MODEL_VERSION,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            **({"labels": labels} if labels else {}),
        },
        "spec": spec,
    }
    return NewVersion(document, tuple(notes))
