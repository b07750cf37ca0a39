"""`why pod`: for what a pod that names a ModelCache waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelcache_api.names import GATE_PLACEMENT, LABEL_CACHE, LABEL_TRACK, Reason, Track
from modelcache_api.v1alpha1.cache_node import CacheNode, CacheNodeStatus
from modelcache_cli.errors import CliError
from modelcache_cli.why import Finding, Target, TargetKind, judge_object
from modelcache_kube import CACHE_NODES, MODEL_CACHES, KubeClient

Object = Mapping[str, Any]


async def explain_pod(kube: KubeClient, target: Target, pod: Object) -> Finding:
    """The first thing that the pod waits for.

    Raises:
        CliError: it names no ModelCache.
    """
    labels = pod["metadata"].get("labels") or {}
    cache = labels.get(LABEL_CACHE)
    if not cache:
        raise CliError(
            f"{target} has no label {LABEL_CACHE}, so it uses no ModelCache: "
            "`kubectl describe pod` says for what it waits"
        )
    found = await kube.get(MODEL_CACHES, cache, target.namespace)
    if found is None:
        return Finding(Reason.MODEL_CACHE_NOT_FOUND, f"there is no ModelCache {cache} here")
    if (state := _judge_scheduling(pod)) is not None:
        return state
    node = await kube.get(CACHE_NODES, pod["spec"]["nodeName"])
    copy = _judge_copy(node, target.namespace or "", cache, labels.get(LABEL_TRACK))
    return copy or judge_object(TargetKind.CACHE, found)


def _judge_scheduling(pod: Object) -> Finding | None:
    """None once the pod is on a node."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    gates = {gate.get("name") for gate in spec.get("schedulingGates") or ()}
    if GATE_PLACEMENT in gates:
        message = "it is held back until a node with its model has room for it"
        return Finding(Reason.WAITING, message, "it ends by itself, half a minute at the latest")
    if spec.get("nodeName"):
        return None
    conditions = status.get("conditions") or ()
    told: Object = next((c for c in conditions if c.get("type") == "PodScheduled"), {})
    message = told.get("message") or "the scheduler has not looked at it yet"
    cure = "mend what the scheduler names; the model is fetched to whatever node it gets"
    return Finding(told.get("reason") or "Unschedulable", message, cure)


def _judge_copy(
    node: Object | None, namespace: str, cache: str, track: str | None
) -> Finding | None:
    """How the copy on the pod's node stands; None if the node is not to have one yet."""
    if node is None:
        return Finding(Reason.NO_AGENT, "the pod's node has no agent")
    seen = CacheNode.model_validate(node)
    refs = (r for r in seen.spec.caches if (r.namespace, r.name) == (namespace, cache))
    ref = next(refs, None)
    uid = ref and (ref.canary_uid if track == Track.CANARY else ref.stable_uid)
    if uid is None:
        return None
    entries = (seen.status or CacheNodeStatus()).entries
    entry = next((entry for entry in entries if entry.uid == uid), None)
    if entry is None:
        return Finding(Reason.WAITING, "the node's agent has not taken notice of the model yet")
    message = entry.message or f"{entry.progress_percent}% of the bytes are in place"
    return Finding(entry.reason or entry.state, f"on the pod's node: {message}")
