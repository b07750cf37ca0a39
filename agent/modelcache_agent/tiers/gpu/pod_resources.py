"""Which devices the kubelet gave to a pod, by its pod-resources API (v1)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import grpc

from modelcache_agent.decide.gpu.handover import Pod
from modelcache_agent.protobuf import Fields, make_classes

_log = logging.getLogger(__name__)
KUBELET_SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
# The kubelet's own clients take so much; a node with hundreds of pods needs a fraction.
_MOST_ANSWER_BYTES: Final = 16 << 20
_DEADLINE_SECONDS: Final = 5.0
# Not `Get`, which older kubelets do not have.
_LIST: Final = "/v1.PodResourcesLister/List"

_TABLE: Final[dict[str, Fields]] = {
    "ListPodResourcesRequest": (),
    "ContainerDevices": (("resource_name", 1, "string"), ("device_ids", 2, "[string]")),
    "ContainerResources": (("name", 1, "string"), ("devices", 2, "[ContainerDevices]")),
    "PodResources": (
        ("name", 1, "string"),
        ("namespace", 2, "string"),
        ("containers", 3, "[ContainerResources]"),
    ),
    "ListPodResourcesResponse": (("pod_resources", 1, "[PodResources]"),),
}
_MESSAGES: Final = make_classes("v1", _TABLE)


class PodResources:
    """Asks the kubelet. Blocks, for seconds at most."""

    def __init__(self, socket: Path = KUBELET_SOCKET) -> None:
        self._channel = grpc.insecure_channel(
            f"unix:{socket}", options=[("grpc.max_receive_message_length", _MOST_ANSWER_BYTES)]
        )
        self._list: Any = self._channel.unary_unary(
            _LIST,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=_MESSAGES["ListPodResourcesResponse"].FromString,
        )

    def devices_of(self, pod: Pod) -> frozenset[str] | None:
        """Ids of all devices of all its containers; None: the kubelet does not answer.

        The kubelet names pods without their UIDs, but no two of one name live at the same time.
        """
        try:
            found = self._list(_MESSAGES["ListPodResourcesRequest"](), timeout=_DEADLINE_SECONDS)
        except grpc.RpcError as error:
            _log.warning("the kubelet does not say which devices pods have: %s", _words(error))
            return None
        return frozenset(
            device_id
            for resources in found.pod_resources
            if (resources.namespace, resources.name) == (pod.namespace, pod.name)
            for container in resources.containers
            for devices in container.devices
            for device_id in devices.device_ids
        )

    def close(self) -> None:
        """End the connection."""
        self._channel.close()


def _words(error: Any) -> str:
    """Every error of a call carries a code; what else it says may name paths."""
    return str(error.code().name)
