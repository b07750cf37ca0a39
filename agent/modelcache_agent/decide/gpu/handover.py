"""Which pod gets the descriptors of a content. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from modelcache_agent.decide.gpu.room import Key, Stay
from modelcache_api.names import Reason

# Device plug-ins that share a card among pods number the shares behind the card's UUID.
_SHARE: Final = "::"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as the kubelet states it, never as it says itself."""

    namespace: str
    name: str
    uid: str


def device_uuids(device_ids: Iterable[str]) -> frozenset[str]:
    """UUIDs of cards (or of their MIG instances) among the ids of a pod's devices."""
    return frozenset(found.partition(_SHARE)[0] for found in device_ids)


def refuse_handover(pod: Pod, key: Key, device: str, given: frozenset[str] | None) -> Stay | None:
    """Why the pod reads from a slower tier, or None if it may map the device's memory.

    Args:
        pod: who asks.
        key: whose content.
        device: UUID of the card that holds it.
        given: ids of the devices that the kubelet gave to the pod; None: it could not be asked.
    """
    if pod.namespace != key.namespace:
        return Stay(
            Reason.VOLUME_REFUSED, f"the content belongs to another namespace than {pod.namespace}"
        )
    if given is None:
        return Stay(
            Reason.GPU_NOT_GIVEN,
            "the kubelet does not say which devices the pod has: mount its folder pod-resources",
        )
    if device not in device_uuids(given):
        return Stay(
            Reason.GPU_NOT_GIVEN,
            f"the bytes are on {device}, which the kubelet has not given to the pod",
        )
    return None
