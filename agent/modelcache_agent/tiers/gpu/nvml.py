"""What NVML says of the cards: their memory, their MIG instances, whether the driver fits.

It is started and ended at each look, so that a driver that was replaced is noticed at the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelcache_agent.decide.gpu.capacity import CardFigures
from modelcache_agent.ports.device import DeviceLostError, DeviceUnavailableError

_MEMORY_INFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Card:
    """A card, or a MIG instance of one, which has memory of its own. `uuid` as NVML spells it."""

    uuid: str
    figures: CardFigures


def read_cards(memory_info: Path = _MEMORY_INFO) -> tuple[Card, ...] | None:
    """All cards and their MIG instances; None: there is no NVML on this node.

    Raises:
        DeviceLostError: a card has fallen off.
        DeviceUnavailableError: NVML refuses, in the driver's own words.
    """
    try:
        import pynvml  # noqa: PLC0415 - only with a GPU tier
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return None
    except pynvml.NVMLError as error:
        raise DeviceUnavailableError(_text(pynvml, error)) from None
    try:
        return tuple(_find_cards(pynvml, memory_info))
    except pynvml.NVMLError_GpuIsLost as error:
        raise DeviceLostError(_text(pynvml, error)) from None
    except pynvml.NVMLError as error:
        raise DeviceUnavailableError(_text(pynvml, error)) from None
    finally:
        pynvml.nvmlShutdown()


def _text(nvml: Any, error: Any) -> str:
    """In the driver's words, which people find when they search."""
    return f"NVML: {nvml.nvmlErrorString(error.value)}"


def _find_cards(nvml: Any, memory_info: Path) -> Iterator[Card]:
    for number in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        yield Card(nvml.nvmlDeviceGetUUID(handle), _read_figures(nvml, handle, memory_info))
        for instance in _instances(nvml, handle):
            figures = _read_figures(nvml, instance, memory_info)
            yield Card(nvml.nvmlDeviceGetUUID(instance), figures)


def _instances(nvml: Any, handle: Any) -> Iterator[Any]:
    try:
        is_divided = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return
    if not is_divided:
        return
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError_NotFound:
            continue


def _read_figures(nvml: Any, handle: Any, memory_info: Path) -> CardFigures:
    """Memory of one card. The parent of MIG instances may refuse; theirs are what counts."""
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NoPermission:
        return CardFigures(None, None)
    except nvml.NVMLError_NotSupported:
        return read_host_memory(memory_info)
    return CardFigures(int(found.total), int(found.used))


def read_host_memory(memory_info: Path = _MEMORY_INFO) -> CardFigures:
    """The host's figures, for cards that use its memory. Without them: none."""
    kib: dict[str, int] = {}
    try:
        for line in memory_info.read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            kib[name] = int(rest.split()[0])
        total, available = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return CardFigures(None, None, is_host_memory=True)
    return CardFigures(total, total - available, is_host_memory=True)
