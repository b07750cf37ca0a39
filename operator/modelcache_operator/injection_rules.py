"""What stands in the way of injection: the user's own volumes, mounts, variables and containers.

Pure; each rule is told once more in CEL, in `admission_volume.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from modelcache_api import names

Raw = Mapping[str, Any]

# The first two are always right; offline mode only together with our own hub cache: an engine
# that was given another one may want to fill it.
ENVIRONMENT: Final = {
    names.ENV_MODEL_PATH: f"{names.MOUNT_PATH}/model",
    names.ENV_HUB_CACHE: f"{names.MOUNT_PATH}/hub",
    names.ENV_HUB_OFFLINE: "1",
}
# Environment of the warm-up container, by the annotation that says it. Empty means the default.
WARM_UP_ENVIRONMENT: Final = {
    f"{names.ENV_PREFIX_AGENT}URL": names.ANNOTATION_WARM_UP,
    f"{names.ENV_PREFIX_AGENT}BODY": names.ANNOTATION_WARM_UP_BODY,
    f"{names.ENV_PREFIX_AGENT}TOKENS": names.ANNOTATION_WARM_UP_TOKENS,
    f"{names.ENV_PREFIX_AGENT}DEADLINE": names.ANNOTATION_WARM_UP_DEADLINE,
}
CONTAINER_LISTS: Final = ("containers", "initContainers")
OS_LABEL: Final = "kubernetes.io/os"
WINDOWS: Final = "windows"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"


def annotations_of(pod: Raw) -> Mapping[str, str]:
    """Annotations of a pod or template; none where they are missing."""
    return (pod.get("metadata") or {}).get("annotations") or {}


def containers_of(spec: Raw) -> Iterator[Raw]:
    """Containers, then init containers."""
    for field_name in CONTAINER_LISTS:
        yield from spec.get(field_name) or ()


def is_volume_ours(spec: Raw) -> bool:
    """True unless the user's own volume bears our name; one of our driver is as good as ours."""
    taken = [one for one in spec.get("volumes") or () if one["name"] == names.VOLUME_NAME]
    return all((one.get("csi") or {}).get("driver") == names.CSI_DRIVER for one in taken)


def reads(container: Raw) -> bool:
    """False where another mount lies at our path or below: it could not be mounted in ours."""
    return not any(
        _is_at_our_path(mount["mountPath"]) and not is_our_mount(mount)
        for mount in container.get("volumeMounts") or ()
    )


def _is_at_our_path(path: str) -> bool:
    return path == names.MOUNT_PATH or path.startswith(f"{names.MOUNT_PATH}/")


def is_our_mount(mount: Raw) -> bool:
    """True for our volume at our path."""
    paths = (names.MOUNT_PATH, f"{names.MOUNT_PATH}/")
    return mount["name"] == names.VOLUME_NAME and mount["mountPath"] in paths


def has_variable(container: Raw, name: str) -> bool:
    """True if the variable is set, to whatever."""
    return any(variable["name"] == name for variable in container.get("env") or ())


def has_other(container: Raw, name: str) -> bool:
    """True if the user has set the variable to something else than we would."""
    return any(
        variable["name"] == name and variable.get("value", "") != ENVIRONMENT[name]
        for variable in container.get("env") or ()
    )


def wants_wait(pod: Raw) -> bool:
    """True unless the wait container is opted out of."""
    return annotations_of(pod).get(names.ANNOTATION_WAIT) != "false"


def wants_warm_up(pod: Raw) -> bool:
    """True if the pod says where its server takes a first request."""
    return bool(annotations_of(pod).get(names.ANNOTATION_WARM_UP))


def has_container(spec: Raw, name: str) -> bool:
    """True if the name of one of our containers is taken."""
    return any(one["name"] == name for one in containers_of(spec))
