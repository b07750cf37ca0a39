"""Which device the GPU tier uses. What drives one is imported where it is opened."""

from __future__ import annotations

from modelcache_agent.decide.gpu.arena import Shape
from modelcache_agent.ports.device import Device, OpenDevice


def find_device(capacity_bytes: int, *, is_emulated: bool) -> OpenDevice:
    """What opens the card, or what plays one of so many bytes."""
    return (lambda: _emulate(capacity_bytes)) if is_emulated else _open_card


def _emulate(capacity_bytes: int) -> Device:
    from modelcache_agent.tiers.gpu.emulated import EmulatedDevice  # noqa: PLC0415

    return EmulatedDevice(Shape(capacity_bytes))


def _open_card() -> Device:
    """The first card that this process sees."""
    from modelcache_agent.tiers.gpu.cuda_vmm import CudaDevice  # noqa: PLC0415

    return CudaDevice()
