"""What a pod that names a ModelCache is given. Pure: pod and ModelCache in, JSON Patch out.

This is the one definition behind the webhook and `kubectl modelcache inject`;
`injection_policy.py` says the same in CEL from the same values, and one table of pods holds all
three together (tests/injection).

Nothing that the user has set is changed. What stands in the way (a volume, mount, variable or
container of the same name) stays, and is named in the annotation `modelcache.io/not-injected`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from modelcache_api import names
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_operator.desired.affinity import build_preferred_terms
from modelcache_operator.injection_rules import (
    CONTAINER_LISTS,
    ENVIRONMENT,
    MIRROR_ANNOTATION,
    OS_LABEL,
    WARM_UP_ENVIRONMENT,
    WINDOWS,
    Raw,
    annotations_of,
    containers_of,
    has_container,
    has_other,
    has_variable,
    is_our_mount,
    is_volume_ours,
    reads,
    wants_wait,
    wants_warm_up,
)
from modelcache_operator.json_patch import Operation, add_all, escape_key

INJECTED: Final = "true"
DEFAULT_TRACK: Final = names.Track.STABLE.value
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
# No user has to own it: our containers only read what everybody may read.
_OUR_USER: Final = 65532
_LAST_WORDS: Final = "/dev/termination-log"
# Words of a failed attempt are in the same file before its container has ended.
_SAYS_WARM: Final = "^warm after "
_PROBE_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class InjectionSettings:
    """What the administrator chooses."""

    wait_image: str


@dataclass(frozen=True, slots=True)
class KnownCache:
    """What placement needs of the pod's ModelCache: its status, as last seen.

    `is_warm` means that a node holds or fetches the model.
    """

    label_keys: Mapping[str, str] = field(default_factory=dict)
    is_warm: bool = False


@dataclass(frozen=True, slots=True)
class Injection:
    """The operations (RFC 6902, all of them `add`), and what was left to the user's settings."""

    operations: tuple[Operation, ...] = ()
    not_injected: tuple[str, ...] = ()


def know_cache(status: ModelCacheStatus | None) -> KnownCache:
    """What a ModelCache's status says to placement."""
    if status is None:
        return KnownCache()
    keys = {track.name: track.node_label_key for track in status.tracks if track.node_label_key}
    copies = status.copies
    return KnownCache(keys, copies is not None and copies.placed > copies.failed)


def build_volume(cache: str, track: str = DEFAULT_TRACK) -> dict[str, Any]:
    """The volume; read-only, or the kubelet would relabel files that all pods share."""
    attributes = {names.VOLUME_ATTRIBUTE_CACHE: cache}
    if track == names.Track.CANARY:
        attributes[names.VOLUME_ATTRIBUTE_TRACK] = track
    csi = {"driver": names.CSI_DRIVER, "readOnly": True, "volumeAttributes": attributes}
    return {"name": names.VOLUME_NAME, "csi": csi}


def build_mount() -> dict[str, Any]:
    """The mount of every container."""
    return {"name": names.VOLUME_NAME, "mountPath": names.MOUNT_PATH, "readOnly": True}


def build_wait_container(settings: InjectionSettings) -> dict[str, Any]:
    """The init container that ends when the model is complete."""
    env = [{"name": names.ENV_MODEL_PATH, "value": ENVIRONMENT[names.ENV_MODEL_PATH]}]
    container = _build_container(settings, names.WAIT_CONTAINER, "wait", env)
    return {**container, "volumeMounts": [build_mount()]}


def build_warm_up_container(
    settings: InjectionSettings, values: Mapping[str, str]
) -> dict[str, Any]:
    """The sidecar that is ready when the pod's server has answered once.

    Its pod is not Ready before. The file is the kubelet's own for last words: there is one in every
    container, and its writer needs no volume.
    """
    env = [{"name": name, "value": value} for name, value in values.items()]
    container = _build_container(settings, names.WARM_UP_CONTAINER, "warmup", env)
    probe = {"exec": {"command": ["grep", "-q", _SAYS_WARM, _LAST_WORDS]}}
    return {
        **container,
        "restartPolicy": "Always",
        "readinessProbe": {**probe, "periodSeconds": _PROBE_SECONDS, "timeoutSeconds": 5},
    }


def _build_container(
    settings: InjectionSettings, name: str, command: str, env: Sequence[Raw]
) -> dict[str, Any]:
    """A program of the agent's image beside the user's.

    Allowed by Pod Security `restricted`. Requests equal limits, so that a Guaranteed pod stays one.
    """
    resources = {"cpu": "100m", "memory": "128Mi"}
    return {
        "name": name,
        "image": settings.wait_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["modelcache-agent", command],
        "env": list(env),
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": _OUR_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def find_cache_name(pod: Raw) -> str | None:
    """The ModelCache that the pod asks for; None where nothing is to be done."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    name = (metadata.get("labels") or {}).get(names.LABEL_CACHE) or None
    is_windows = WINDOWS in {
        (spec.get("os") or {}).get("name"),
        (spec.get("nodeSelector") or {}).get(OS_LABEL),
    }
    # A mirror pod shows what a kubelet runs already.
    is_mirror = MIRROR_ANNOTATION in annotations_of(pod)
    return None if is_windows or is_mirror else name


def make_injection(pod: Raw, cache: KnownCache | None, settings: InjectionSettings) -> Injection:
    """All that the pod lacks. `cache` is None while the ModelCache does not exist.

    A pod that has been through it is left alone.
    """
    name = find_cache_name(pod)
    if name is None:
        return Injection()
    added: tuple[Operation, ...] = ()
    refused: tuple[str, ...] = ()
    if names.ANNOTATION_INJECTED not in annotations_of(pod):
        refused = tuple(_refusals(pod))
        added = (*_give_volume(pod, name, settings), *_annotate(pod, _marks(refused)))
    if cache is None or names.ANNOTATION_INJECTED_AFFINITY in annotations_of(pod):
        return Injection(added, refused)
    placed = tuple(_give_placement(add_all(pod, added), cache))
    return Injection(added + placed, refused)


def find_track(pod: Raw) -> str:
    """The track that the pod belongs to."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return str(labels.get(names.LABEL_TRACK) or DEFAULT_TRACK)


def is_placement_required(pod: Raw) -> bool:
    """True if the pod rather waits than starts far from the model."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    wish = labels.get(names.LABEL_PLACEMENT) or annotations_of(pod).get(names.LABEL_PLACEMENT)
    return wish == names.PLACEMENT_REQUIRED


def _give_volume(pod: Raw, cache: str, settings: InjectionSettings) -> Iterator[Operation]:
    spec = pod.get("spec") or {}
    if not is_volume_ours(spec):
        return
    if not any(volume["name"] == names.VOLUME_NAME for volume in spec.get("volumes") or ()):
        yield from _append(spec, "/spec", "volumes", [build_volume(cache, find_track(pod))])
    for field_name in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field_name) or ()):
            if reads(container):
                yield from _equip(container, f"/spec/{field_name}/{index}")
    waits = wants_wait(pod) and not has_container(spec, names.WAIT_CONTAINER)
    warms = wants_warm_up(pod) and not has_container(spec, names.WARM_UP_CONTAINER)
    if (waits or warms) and not spec.get("initContainers"):
        yield _add("/spec/initContainers", [])
    if waits:
        yield _add("/spec/initContainers/0", build_wait_container(settings))
    if warms:
        said = annotations_of(pod)
        values = {name: said.get(key, "") for name, key in WARM_UP_ENVIRONMENT.items()}
        yield _add("/spec/initContainers/-", build_warm_up_container(settings, values))


def _equip(container: Raw, path: str) -> Iterator[Operation]:
    if not any(is_our_mount(mount) for mount in container.get("volumeMounts") or ()):
        yield from _append(container, path, "volumeMounts", [build_mount()])
    has_foreign_hub = has_other(container, names.ENV_HUB_CACHE)
    added = [
        {"name": name, "value": value}
        for name, value in ENVIRONMENT.items()
        if not has_variable(container, name)
        and not (name == names.ENV_HUB_OFFLINE and has_foreign_hub)
    ]
    yield from _append(container, path, "env", added)


def _refusals(pod: Raw) -> Iterator[str]:
    """What the user's own settings stand in the way of; the order is that of the policy."""
    spec = pod.get("spec") or {}
    if not is_volume_ours(spec):
        yield f"volume {names.VOLUME_NAME}"
        return
    if wants_wait(pod) and has_container(spec, names.WAIT_CONTAINER):
        yield f"container {names.WAIT_CONTAINER}"
    if wants_warm_up(pod) and has_container(spec, names.WARM_UP_CONTAINER):
        yield f"container {names.WARM_UP_CONTAINER}"
    containers = list(containers_of(spec))
    yield from (f"mount in {one['name']}" for one in containers if not reads(one))
    for name in ENVIRONMENT:
        for container in containers:
            if reads(container) and has_other(container, name):
                yield f"{name} in {container['name']}"


def _give_placement(pod: Raw, cache: KnownCache) -> Iterator[Operation]:
    spec = pod.get("spec") or {}
    key = cache.label_keys.get(find_track(pod), "")
    if key:
        yield from _prefer(spec.get("affinity"), build_preferred_terms(key))
    # A gate on a pod that has its node already is refused by the API server.
    if is_placement_required(pod) and cache.is_warm and not spec.get("nodeName"):
        gates = spec.get("schedulingGates") or ()
        if not any(gate["name"] == names.GATE_PLACEMENT for gate in gates):
            yield from _append(spec, "/spec", "schedulingGates", [{"name": names.GATE_PLACEMENT}])
    yield from _annotate(pod, {names.ANNOTATION_INJECTED_AFFINITY: key})


def _prefer(affinity: Raw | None, terms: Sequence[Raw]) -> Iterator[Operation]:
    """Join: terms of the user keep their places and weights."""
    path = "/spec/affinity"
    if affinity is None:
        yield _add(path, {})
    node_affinity = (affinity or {}).get("nodeAffinity")
    if node_affinity is None:
        yield _add(f"{path}/nodeAffinity", {})
    yield from _append(node_affinity or {}, f"{path}/nodeAffinity", PREFERRED, terms)


def _marks(refused: Sequence[str]) -> dict[str, str]:
    marks = {names.ANNOTATION_INJECTED: INJECTED}
    if refused:
        marks[names.ANNOTATION_NOT_INJECTED] = ", ".join(refused)
    return marks


def _annotate(pod: Raw, marks: Mapping[str, str]) -> Iterator[Operation]:
    if not annotations_of(pod):
        yield _add("/metadata/annotations", {})
    for key, value in marks.items():
        yield _add(f"/metadata/annotations/{escape_key(key)}", value)


def _append(parent: Raw, path: str, field_name: str, items: Sequence[Raw]) -> Iterator[Operation]:
    """Items at the end of a list that may be missing."""
    if items and not parent.get(field_name):
        yield _add(f"{path}/{field_name}", [])
    for item in items:
        yield _add(f"{path}/{field_name}/-", dict(item))


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
