"""`affinity`: the nodeAffinity of a ModelCache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from modelcache_api.names import Condition, Track
from modelcache_api.v1alpha1.model_cache import ModelCache, ModelCacheStatus
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import parse_object
from modelcache_kube import MODEL_CACHES, KubeClient
from modelcache_operator.desired.affinity import build_node_affinity


@dataclass(frozen=True, slots=True)
class AffinityRequest:
    """What is asked for."""

    namespace: str
    name: str
    track: str
    is_required: bool


async def fetch_affinity(kube: KubeClient, request: AffinityRequest) -> dict[str, Any]:
    """The nodeAffinity by the label key that the ModelCache's status names.

    Raises:
        CliError: there is no such ModelCache or no canary, or its content is not known yet.
    """
    found = await kube.get(MODEL_CACHES, request.name, request.namespace)
    if found is None:
        raise CliError(
            f"there is no ModelCache {request.name!r} in namespace {request.namespace!r}; "
            "`kubectl get modelcaches --all-namespaces` lists them"
        )
    cache = parse_object(ModelCache, found)
    where = f"{request.namespace}/{request.name}"
    is_canary = request.track == Track.CANARY
    if is_canary and cache.spec.canary is None:
        raise CliError(f"{where} has no canary; name one in spec.canary, or leave --track out")
    status = cache.status or ModelCacheStatus()
    key = next((t.node_label_key for t in status.tracks if t.name == request.track), None)
    if key is None:
        told_by = Condition.CANARY_RESIDENT if is_canary else Condition.READY
        told = next((c for c in status.conditions if c.type == told_by), None)
        why = f"{told.reason}: {told.message}" if told else "the operator has not seen it yet"
        raise CliError(
            f"the content of {where} is not known yet, so no node can carry its label ({why}); "
            "try again when a first copy is verified"
        )
    return build_node_affinity([key], required=request.is_required)
