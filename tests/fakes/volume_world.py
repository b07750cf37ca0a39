"""Volumes of pods without mounts: what the driver writes, and what a pod would see."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.played_kubelet import Pod
from fakes.store_world import read_tree
from modelcache_agent.volume.folders import VolumeFolder
from modelcache_agent.volume.requests import PublishRequest
from modelcache_testbed.played_volumes import UnmountedPublisher


@dataclass
class PlayedPods:
    """Publishes by the driver's own code, on a store of any agent."""

    store: Path
    kubelet: Path

    @property
    def publisher(self) -> UnmountedPublisher:
        return UnmountedPublisher(self.store, self.kubelet)

    def add(self, pod: Pod) -> PodVolume:
        self.publisher.publish(
            PublishRequest(
                volume_id=pod.volume_id,
                target_path=self._target(pod),
                is_read_only=True,
                is_block=False,
                context=pod.context,
            )
        )
        return self.find(pod)

    def find(self, pod: Pod) -> PodVolume:
        return PodVolume(VolumeFolder(self.store / "pods" / pod.uid / pod.volume_id))

    def remove(self, pod: Pod) -> None:
        self.publisher.unpublish(pod.volume_id, self._target(pod))

    def _target(self, pod: Pod) -> str:
        volumes = self.kubelet / "pods" / pod.uid / "volumes" / "kubernetes.io~csi"
        return str(volumes / pod.volume / "mount")


@dataclass(frozen=True)
class PodVolume:
    """What one pod sees."""

    folder: VolumeFolder

    @property
    def status(self) -> dict[str, Any]:
        return json.loads(self.folder.status.read_bytes())

    @property
    def state(self) -> str:
        return self.status["state"]

    @property
    def is_ready(self) -> bool:
        return self.state == "Ready"

    @property
    def model(self) -> dict[str, bytes]:
        return read_tree(self.folder.model)

    @property
    def bound(self) -> dict[str, str]:
        return json.loads(self.folder.bound.read_bytes())
