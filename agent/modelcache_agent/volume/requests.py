"""What the kubelet asks for, and whether it may be given. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from modelcache_agent.tiers.layout import is_uid
from modelcache_agent.volume.errors import VolumeRequestError
from modelcache_agent.volume.folders import is_volume_id
from modelcache_agent.volume.records import VolumeRecord
from modelcache_api import names

_MOST_CHARACTERS: Final = 253


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """NodePublishVolume as received. `context` holds the pod's attributes and the kubelet's."""

    volume_id: str
    target_path: str
    is_read_only: bool
    is_block: bool
    context: Mapping[str, str]


def make_record(request: PublishRequest, kubelet_pods: PurePosixPath) -> VolumeRecord:
    """The record of an acceptable request.

    The kubelet's statements override the pod's attributes only while the CSIDriver object asks for
    them. The pod's UID is in the target's path too, which no pod can choose: it must agree.

    Raises:
        VolumeRequestError: it can never be fulfilled.
    """
    check_volume_id(request.volume_id)
    target = check_target(request.target_path, kubelet_pods)
    if not request.is_read_only or request.is_block:
        raise VolumeRequestError(
            f"volumes of {names.CSI_DRIVER} are folders that many pods share: set readOnly: true "
            "in the pod's csi volume"
        )
    context = request.context
    uid = context.get(names.KUBELET_POD_UID, "")
    if context.get(names.KUBELET_EPHEMERAL) != "true" or not is_uid(uid):
        raise VolumeRequestError(
            f"the kubelet does not say for which pod this is: the CSIDriver {names.CSI_DRIVER} "
            "needs podInfoOnMount: true and volumeLifecycleModes: [Ephemeral]"
        )
    if target.relative_to(kubelet_pods).parts[0] != uid:
        raise VolumeRequestError(
            "the pod's UID and the mount's path differ: the CSIDriver "
            f"{names.CSI_DRIVER} needs podInfoOnMount: true"
        )
    return VolumeRecord(
        volume_id=request.volume_id,
        pod_uid=uid,
        pod_namespace=_required(context, names.KUBELET_POD_NAMESPACE),
        pod_name=_required(context, names.KUBELET_POD_NAME),
        service_account=_optional(context, names.KUBELET_SERVICE_ACCOUNT),
        cache=_required(context, names.VOLUME_ATTRIBUTE_CACHE),
        claimed_namespace=_optional(context, names.VOLUME_ATTRIBUTE_NAMESPACE),
        target_path=request.target_path,
        track=_optional(context, names.VOLUME_ATTRIBUTE_TRACK),
    )


def check_volume_id(volume_id: str) -> None:
    """Raises VolumeRequestError if it cannot be a folder's name."""
    if not is_volume_id(volume_id):
        raise VolumeRequestError(f"the volume id {volume_id[:80]!r} is not one of a kubelet")


def check_target(target_path: str, kubelet_pods: PurePosixPath) -> PurePosixPath:
    """The path, which lies below the kubelet's folder of pods.

    Raises:
        VolumeRequestError: it does not, so that a mount there would reach no pod.
    """
    target = PurePosixPath(target_path)
    if ".." in target.parts or kubelet_pods not in target.parents:
        raise VolumeRequestError(
            f"the path {target_path[:200]!r} is not below {kubelet_pods}: "
            "--kubelet-dir must be the kubelet's --root-dir, mounted at that very path"
        )
    return target


def _required(context: Mapping[str, str], key: str) -> str:
    value = _optional(context, key)
    if not value:
        where = "volumeAttributes" if key == names.VOLUME_ATTRIBUTE_CACHE else "kubelet's request"
        raise VolumeRequestError(f"{key} is missing in the {where}")
    return value


def _optional(context: Mapping[str, str], key: str) -> str:
    value = context.get(key, "")
    if len(value) > _MOST_CHARACTERS:
        raise VolumeRequestError(f"{key} is longer than {_MOST_CHARACTERS} characters")
    return value
