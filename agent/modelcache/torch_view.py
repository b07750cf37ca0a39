"""Bytes of a file as torch tensors."""

from __future__ import annotations

from typing import Any, Final

import torch

from modelcache.errors import DeviceMapError, UnsupportedDtypeError
from modelcache.header import TensorInfo

# safetensors' names of types in torch's words; the newest of them are not in every torch.
_DTYPES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}


def view(info: TensorInfo, buffer: memoryview) -> torch.Tensor:
    """A tensor on the buffer of its file. Its storage owns the buffer.

    Raises:
        UnsupportedDtypeError: torch has no such type.
    """
    dtype = find_dtype(info)
    if info.size_bytes == 0:
        return torch.empty(info.shape, dtype=dtype)
    if info.offset % dtype.itemsize:
        # Only writers that do not pad their header produce this.
        copy = bytearray(buffer[info.offset : info.offset + info.size_bytes])
        return torch.frombuffer(copy, dtype=dtype).reshape(info.shape)
    count = info.size_bytes // dtype.itemsize
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=info.offset).reshape(
        info.shape
    )


def view_bytes(buffer: memoryview) -> torch.Tensor:
    """All bytes of the buffer, which the tensor's storage owns."""
    return torch.frombuffer(buffer, dtype=torch.uint8)


def view_on_device(info: TensorInfo, array: Any, device: str) -> torch.Tensor:
    """A tensor on bytes of a device. Its storage owns the array.

    Raises:
        UnsupportedDtypeError: torch has no such type.
        DeviceMapError: this torch does not know the device, or the bytes are not aligned for it.
    """
    dtype = find_dtype(info)
    if info.size_bytes == 0:
        return torch.empty(info.shape, dtype=dtype, device=device)
    if info.offset % dtype.itemsize:
        raise DeviceMapError(f"tensor {info.name!r} is not aligned: read it from the volume")
    try:
        whole = torch.as_tensor(array, device=device)
    except (AssertionError, RuntimeError) as error:
        # Without CUDA torch answers with an assertion.
        raise DeviceMapError(f"torch cannot use {device}: {error}") from None
    return whole.view(dtype).reshape(info.shape)


def find_dtype(info: TensorInfo) -> torch.dtype:
    """The tensor's type. Raises UnsupportedDtypeError."""
    dtype: torch.dtype | None = getattr(torch, _DTYPES.get(info.dtype, ""), None)
    if dtype is None:
        raise UnsupportedDtypeError(
            f"torch {torch.__version__} has no type for {info.dtype} of tensor {info.name!r}: "
            "take raw()"
        )
    return dtype
