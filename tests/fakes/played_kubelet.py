"""The kubelet's side of a CSI driver.

It writes the wire format by hand, with the numbers of the public specifications, so that a wrong
number in the driver's own tables is found.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from fakes.mount_room import MountRoom, end
from modelcache_testbed.waiting import wait_until

Fields = Mapping[int, Any]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def encode(message: Fields) -> bytes:
    """Texts, booleans, maps of texts, and messages as mappings from numbers."""
    out = b""
    for number, value in message.items():
        if isinstance(value, bool):
            out += _varint(number << 3) + _varint(value)
        elif isinstance(value, Mapping) and all(isinstance(key, str) for key in value) and value:
            for key, text in value.items():
                out += encode({number: {1: key, 2: text}})
        else:
            data = value.encode() if isinstance(value, str) else encode(value)
            out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return out


def decode(data: bytes) -> dict[int, list[Any]]:
    """By number: integers, or bytes for all that has a length."""
    found: dict[int, list[Any]] = {}
    position = 0

    def varint() -> int:
        nonlocal position
        shift = number = 0
        while True:
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while position < len(data):
        tag = varint()
        value: Any = varint()
        if tag & 7 == 2:
            position += value
            value = data[position - value : position]
        found.setdefault(tag >> 3, []).append(value)
    return found


@dataclass(frozen=True)
class Pod:
    uid: str = "11111111-1111-1111-1111-111111111111"
    namespace: str = "search"
    name: str = "embed-0"
    account: str = "default"
    cache: str = "minilm"
    volume: str = "models"
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def volume_id(self) -> str:
        return f"csi-{self.volume}-{self.uid}"

    @property
    def context(self) -> dict[str, str]:
        """As the kubelet merges it: its own statements win."""
        return {
            "modelcache.io/cache": self.cache,
            **self.attributes,
            "csi.storage.k8s.io/pod.name": self.name,
            "csi.storage.k8s.io/pod.namespace": self.namespace,
            "csi.storage.k8s.io/pod.uid": self.uid,
            "csi.storage.k8s.io/serviceAccount.name": self.account,
            "csi.storage.k8s.io/ephemeral": "true",
        }


class PlayedKubelet:
    """Finds the driver by its registration socket, as the kubelet does, and calls it."""

    def __init__(self, room: MountRoom) -> None:
        self.room = room
        self.process: subprocess.Popen | None = None
        self.log = room.folder / "csi.log"

    @property
    def registration(self) -> Path:
        return self.room.kubelet / "plugins_registry" / "csi.modelcache.io-reg.sock"

    def start_driver(self, *extra: str) -> None:
        with self.log.open("ab") as log:
            self.process = self.room.start_program(
                *("csi", "--node-name=n1", f"--store={self.room.store}"),
                *(f"--kubelet-dir={self.room.kubelet}", *extra),
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, seconds=20, what="the driver to answer")

    def end_driver(self, number: int = signal.SIGKILL) -> int:
        return end(self.process, number)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end_driver()

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            self.plugin_info()
        except grpc.RpcError:
            return False
        return True

    def call(self, path: Path, method: str, message: Fields, seconds: float = 20) -> dict:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            send = channel.unary_unary(f"/{method}")
            return decode(send(encode(message), timeout=seconds))

    def plugin_info(self) -> dict:
        return self.call(self.registration, "pluginregistration.Registration/GetInfo", {})

    @property
    def endpoint(self) -> Path:
        return Path(self.plugin_info()[3][0].decode())

    def target(self, pod: Pod) -> Path:
        return self.room.target(pod.uid, pod.volume)

    def publish(self, pod: Pod, **changes: Any) -> Path:
        """The path of the mount, as containers get it."""
        target = self.target(pod)
        message = {
            1: changes.get("volume_id", pod.volume_id),
            4: str(changes.get("target", target)),
            5: changes.get("capability", {2: {}, 3: {}}),
            6: changes.get("read_only", True),
            8: changes.get("context", pod.context),
        }
        self.call(self.endpoint, "csi.v1.Node/NodePublishVolume", message)
        return target

    def unpublish(self, pod: Pod, **changes: Any) -> None:
        message = {
            1: changes.get("volume_id", pod.volume_id),
            2: str(changes.get("target", self.target(pod))),
        }
        self.call(self.endpoint, "csi.v1.Node/NodeUnpublishVolume", message)
