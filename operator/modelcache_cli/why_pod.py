"""`why pod`: for what a pod that names a ModelCache waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from modelcache_api.names import (
    ANNOTATION_NOT_INJECTED,
    CSI_DRIVER,
    GATE_PLACEMENT,
    LABEL_CACHE,
    LABEL_TRACK,
    EntryState,
    Reason,
    Track,
)
from modelcache_cli.errors import CliError
from modelcache_cli.fleet import SeenNode, see_node
from modelcache_cli.why import Finding, Target, TargetKind, judge_object
from modelcache_kube import CACHE_NODES, MODEL_CACHES, KubeClient

Object = Mapping[str, Any]
# Of the kubelet, before a pod's first container is created: volumes come first, then images.
_NOT_CREATED: Final = frozenset({"ContainerCreating", "PodInitializing"})
_SEE_MOUNTS: Final = (
    "`kubectl describe pod` names the volume or image that fails; of a volume, see that "
    "`kubectl modelcache checklist` passes CSI"
)


async def explain_pod(kube: KubeClient, target: Target, pod: Object) -> Finding:
    """The first thing that the pod waits for.

    Raises:
        CliError: it names no ModelCache, or its node is not what this release knows.
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
    if (lack := _judge_volume(pod)) is not None:
        return lack
    if (state := _judge_scheduling(pod)) is not None:
        return state
    raw = await kube.get(CACHE_NODES, pod["spec"]["nodeName"])
    if raw is None:
        return Finding(Reason.NO_AGENT, "the pod's node has no agent")
    node = see_node(raw)
    if not node.is_alive:
        told = node.finding
        return Finding(told.reason, f"of node {node.name}: {told.message}", told.cure)
    copy = _judge_copy(node, pod, target.namespace or "", labels)
    return copy or _judge_unasked(judge_object(TargetKind.CACHE, found), pod)


def _judge_unasked(cache: Finding, pod: Object) -> Finding:
    """How it stands while its node is not to have the model, for which its volume asks."""
    waiting = _find_waiting(pod)
    if not waiting or not cache.is_ready:
        return cache
    return Finding(
        waiting,
        "no container of it is created, and no volume has asked for its model on its node",
        _SEE_MOUNTS,
    )


def _judge_volume(pod: Object) -> Finding | None:
    """None if it has a volume of ours."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    if any((volume.get("csi") or {}).get("driver") == CSI_DRIVER for volume in volumes):
        return None
    annotations = pod["metadata"].get("annotations") or {}
    left_out = annotations.get(ANNOTATION_NOT_INJECTED)
    return Finding(
        "NotInjected",
        f"it has no volume of {CSI_DRIVER}{f': left out: {left_out}' if left_out else ''}",
        "see that `kubectl modelcache checklist` passes admission, and make the pod anew",
    )


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
    node: SeenNode, pod: Object, namespace: str, labels: Mapping[str, str]
) -> Finding | None:
    """How the copy on the pod's node stands; None if the node is not to have one yet."""
    cache, track = labels[LABEL_CACHE], labels.get(LABEL_TRACK)
    refs = (r for r in node.spec.caches if (r.namespace, r.name) == (namespace, cache))
    ref = next(refs, None)
    uid = ref and (ref.canary_uid if track == Track.CANARY else ref.stable_uid)
    if uid is None:
        return None
    entry = next((entry for entry in node.status.entries if entry.uid == uid), None)
    if entry is None:
        return Finding(Reason.WAITING, "the node's agent has not taken notice of the model yet")
    if entry.state == EntryState.CACHED and (waiting := _find_waiting(pod)):
        return Finding(
            waiting,
            "its model is on its node, but no container of it is created",
            _SEE_MOUNTS,
        )
    message = entry.message or f"{entry.progress_percent}% of the bytes are in place"
    return Finding(entry.reason or entry.state, f"on the pod's node: {message}")


def _find_waiting(pod: Object) -> str:
    """What the kubelet says while it has created none of the pod's containers; else empty."""
    status = pod.get("status") or {}
    states = [
        one.get("state") or {}
        for field in ("initContainerStatuses", "containerStatuses")
        for one in status.get(field) or ()
    ]
    words = {str((state.get("waiting") or {}).get("reason", "")) for state in states}
    return min(words) if words and words <= _NOT_CREATED else ""
