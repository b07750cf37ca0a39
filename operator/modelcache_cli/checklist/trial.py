"""The test model of a checklist: resolved, fetched, verified, and taken away again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from modelcache_api.cures import find_cure
from modelcache_api.names import MANAGER_COMMAND_LINE, Condition
from modelcache_api.v1alpha1.model_cache import ModelCache, ModelCacheStatus
from modelcache_cli.checklist.values import Trial
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import parse_object
from modelcache_kube import (
    MODEL_CACHES,
    MODEL_VERSIONS,
    Forbidden,
    Invalid,
    KubeClient,
    NotFound,
    Resource,
)

_LOOK_SECONDS: Final = 1.0
# The operator may see the one object before the other, and be wrong about it for a moment.
_SETTLES_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class TrialModel:
    """What to try, where, and for how long in seconds. `secret` names the source's Secret."""

    uri: str
    namespace: str
    timeout: float
    endpoint: str | None = None
    secret: str | None = None


def build_trial(model: TrialModel, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A ModelVersion of the source, and a ModelCache that holds one copy of it."""
    metadata = {"name": name, "namespace": model.namespace}
    source: dict[str, Any] = {"uri": model.uri}
    if model.endpoint is not None:
        source["endpoint"] = model.endpoint
    if model.secret is not None:
        source["credentialsSecretRef"] = {"name": model.secret}
    version = {"metadata": metadata, "spec": {"model": "modelcache/checklist", "source": source}}
    spec = {"stable": {"modelVersion": name}, "placement": {"copies": 1}, "priority": "Low"}
    return version, {"metadata": metadata, "spec": spec}


async def try_model(
    kube: KubeClient,
    model: TrialModel,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Trial:
    """Wait for one verified copy, or until it needs help; both objects are deleted in the end.

    Raises:
        CliError: they may not be created.
        KubeError: the API server does not answer.
    """
    name = f"checklist-{secrets.token_hex(4)}"
    began, elapsed = clock(), 0.0
    told, cure = "the operator has not looked at it yet", "check that the operator runs"
    async with _created(kube, model, name):
        while (elapsed := clock() - began) < model.timeout:
            found = await kube.get(MODEL_CACHES, name, model.namespace)
            conditions = {c.type: c for c in _read_status(found).conditions}
            if (ready := conditions.get(Condition.READY)) is not None:
                told = f"{ready.reason}: {ready.message}"
                cure = find_cure(ready.reason, ready.message)
                if ready.status == "True":
                    return Trial(is_cached=True, seconds=elapsed, told=told)
            stalled = conditions.get(Condition.STALLED)
            if elapsed >= _SETTLES_SECONDS and stalled is not None and stalled.status == "True":
                break
            await sleep(_LOOK_SECONDS)
    return Trial(
        is_cached=False,
        seconds=elapsed,
        told=f"no verified copy after {elapsed:.0f} s: {told}",
        cure=cure,
    )


def _read_status(found: dict[str, Any] | None) -> ModelCacheStatus:
    if found is None:
        raise CliError("the test model's ModelCache was deleted while it was waited for")
    return parse_object(ModelCache, found).status or ModelCacheStatus()


@asynccontextmanager
async def _created(kube: KubeClient, model: TrialModel, name: str) -> AsyncIterator[None]:
    version, cache = build_trial(model, name)
    made: list[Resource] = []
    try:
        for resource, obj in ((MODEL_VERSIONS, version), (MODEL_CACHES, cache)):
            await _create(kube, resource, obj)
            made.append(resource)
        yield
    finally:
        # Interrupted, too: what was made for a test must not stay.
        await asyncio.shield(_delete(kube, made, model.namespace, name))


async def _create(kube: KubeClient, resource: Resource, obj: dict[str, Any]) -> None:
    namespace = obj["metadata"]["namespace"]
    try:
        await kube.create(resource, obj, field_manager=MANAGER_COMMAND_LINE)
    except Forbidden as error:
        raise CliError(
            f"you may not create the test model's {resource.kind} in namespace {namespace}: give "
            f"another one by -n ({error})"
        ) from error
    except NotFound as error:
        if not error.names_an_object:
            raise
        raise CliError(
            f"there is no namespace {namespace}: create it, or give another one by -n"
        ) from error
    except Invalid as error:
        # The pattern of an address helps nobody; the sentence of the rule is shorter.
        causes = [str(cause.get("message")) for cause in error.details.get("causes") or ()]
        said = min(causes, key=len, default=str(error))
        raise CliError(f"the test model's {resource.kind} is refused: {said}") from error


async def _delete(kube: KubeClient, made: Sequence[Resource], namespace: str, name: str) -> None:
    for resource in reversed(made):
        await kube.delete(resource, name, namespace)
