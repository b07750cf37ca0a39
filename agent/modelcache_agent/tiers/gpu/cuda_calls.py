"""Calls of the CUDA driver, each answer checked.

The driver's own errors are returned values and stick to nothing: after a refused allocation the
next call is as good as before. Those that kill the context are told apart as DeviceLostError.
"""

from __future__ import annotations

from typing import Any, Final

from modelcache_agent.ports.device import (
    DeviceError,
    DeviceLostError,
    DeviceUnavailableError,
    OutOfDeviceMemoryError,
)

# What CUresult calls them, without CUDA_ERROR_.
_LOST: Final = frozenset(
    {
        "DEINITIALIZED",
        "DEVICE_UNAVAILABLE",
        "CONTEXT_IS_DESTROYED",
        "ECC_UNCORRECTABLE",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_ADDRESS",
        "LAUNCH_FAILED",
        "NVLINK_UNCORRECTABLE",
        "CONTAINED",
        "UNKNOWN",
    }
)
_UNAVAILABLE: Final = frozenset(
    {
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "DEVICE_NOT_LICENSED",
        "INVALID_DEVICE",
        "NO_DEVICE",
        "NOT_INITIALIZED",
        "NOT_SUPPORTED",
        "STUB_LIBRARY",
        "SYSTEM_DRIVER_MISMATCH",
        "SYSTEM_NOT_READY",
    }
)
_OUT_OF_MEMORY: Final = "OUT_OF_MEMORY"


class CudaCalls:
    """The functions of `cuda.bindings.driver` by name."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver  # noqa: PLC0415 - 30 MB, only with a GPU tier
        except ImportError as error:
            raise DeviceUnavailableError(
                f"cuda-bindings cannot be imported ({error}): install modelcache[gpu]"
            ) from None
        self.api: Any = driver

    def __call__(self, name: str, *arguments: Any) -> Any:
        """What the function returns beside its error: nothing, a value, or a tuple.

        Raises:
            DeviceError: or the kind of it that the driver's answer means.
        """
        try:
            error, *values = getattr(self.api, name)(*arguments)
        except RuntimeError as missing:
            # The bindings look for the library, and for each function, at the first call.
            raise DeviceUnavailableError(
                f"no driver of CUDA that knows {name}: {missing}"
            ) from None
        if error != self.api.CUresult.CUDA_SUCCESS:
            raise self._explain(name, error)
        return values[0] if len(values) == 1 else tuple(values)

    def _explain(self, name: str, error: Any) -> DeviceError:
        word = getattr(error, "name", str(error)).removeprefix("CUDA_ERROR_")
        _, text = self.api.cuGetErrorString(error)
        message = f"{name}: {text.decode(errors='replace') if text else 'error'} ({word})"
        if word == _OUT_OF_MEMORY:
            return OutOfDeviceMemoryError(message)
        if word in _LOST:
            return DeviceLostError(message)
        if word in _UNAVAILABLE:
            return DeviceUnavailableError(message)
        return DeviceError(message)
