"""AdmissionReviews in, AdmissionReviews out. Pure; never refuses a pod."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.injection import (
    Injection,
    InjectionSettings,
    KnownCache,
    find_cache_name,
    make_injection,
)

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
_CREATE: Final = "CREATE"
# The API server cuts warnings off at this length.
_LONGEST_WARNING: Final = 256

FindCache = Callable[[ObjectKey], KnownCache | None]


def review_pod(
    review: Mapping[str, Any], find_cache: FindCache, settings: InjectionSettings
) -> dict[str, Any]:
    """The answer: allowed, with a patch for what the pod lacks.

    Raises:
        ValueError: it is no review of a pod.
    """
    request = review.get("request")
    if not isinstance(request, Mapping) or not request.get("uid"):
        raise ValueError("there is no request in it")
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    pod = request.get("object")
    if request.get("operation") == _CREATE and isinstance(pod, Mapping):
        namespace = str(request.get("namespace") or "")
        response |= _inject(pod, namespace, find_cache, settings)
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def _inject(
    pod: Mapping[str, Any], namespace: str, find_cache: FindCache, settings: InjectionSettings
) -> dict[str, Any]:
    name = find_cache_name(pod)
    if name is None:
        return {}
    cache = find_cache(ObjectKey(namespace, name))
    injection = make_injection(pod, cache, settings)
    if not injection.operations:
        return {}
    patch = json.dumps(injection.operations, separators=(",", ":")).encode()
    response: dict[str, Any] = {
        "patchType": "JSONPatch",
        "patch": base64.b64encode(patch).decode(),
    }
    warnings = _warnings(namespace, name, injection, is_known=cache is not None)
    if warnings:
        response["warnings"] = [text[:_LONGEST_WARNING] for text in warnings]
    return response


def _warnings(namespace: str, name: str, injection: Injection, *, is_known: bool) -> list[str]:
    told = []
    if injection.not_injected:
        what = ", ".join(injection.not_injected)
        told.append(f"modelcache: the pod's own settings were kept: {what}")
    if not is_known:
        told.append(
            f"modelcache: there is no ModelCache {name} in namespace {namespace}: "
            "the pod waits until it is created"
        )
    return told
