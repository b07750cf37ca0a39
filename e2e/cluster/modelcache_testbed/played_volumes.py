"""Volumes of played pods: all that the CSI driver does but the mount, as no container is there.

The folder that a container would see at /mnt/models is read where it lies in the node's store.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_agent.volume.folders import VolumeFolder
from modelcache_agent.volume.publisher import Publisher
from modelcache_agent.volume.requests import PublishRequest
from modelcache_api import names

if TYPE_CHECKING:
    from modelcache_testbed.kube_api import Document

_VOLUME = "modelcache"


class UnmountedPublisher(Publisher):
    """The driver's own code, without the mount."""

    def _show(self, folder: VolumeFolder, target: Path) -> None:
        """The pod's view is read where it lies."""


class PlayedVolumes:
    """The kubelet's and the driver's part on one played node."""

    def __init__(self, store: Path, kubelet: Path) -> None:
        """``kubelet`` stands for /var/lib/kubelet; nothing is written there."""
        self._store = store
        self._kubelet = kubelet

    def publish(self, pod: Document, cache: str) -> Path:
        """Give a pod of the API server its volume; return what it would see at /mnt/models."""
        metadata = pod["metadata"]
        uid = metadata["uid"]
        self._publisher().publish(
            PublishRequest(
                volume_id=_volume_id(uid),
                target_path=self._target(uid),
                is_read_only=True,
                is_block=False,
                context={
                    names.VOLUME_ATTRIBUTE_CACHE: cache,
                    names.KUBELET_POD_NAME: metadata["name"],
                    names.KUBELET_POD_NAMESPACE: metadata["namespace"],
                    names.KUBELET_POD_UID: uid,
                    names.KUBELET_SERVICE_ACCOUNT: "default",
                    names.KUBELET_EPHEMERAL: "true",
                },
            )
        )
        return VolumeFolder(self._store / "pods" / uid / _volume_id(uid)).content

    def unpublish(self, pod: Document) -> None:
        """Take it away, as at the pod's end."""
        uid = pod["metadata"]["uid"]
        self._publisher().unpublish(_volume_id(uid), self._target(uid))

    def _publisher(self) -> Publisher:
        return UnmountedPublisher(self._store, self._kubelet)

    def _target(self, uid: str) -> str:
        volumes = self._kubelet / "pods" / uid / "volumes" / "kubernetes.io~csi"
        return str(volumes / _VOLUME / "mount")


def _volume_id(uid: str) -> str:
    return f"csi-{uid}"
