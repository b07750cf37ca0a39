"""Which file names promise weights. Pure."""

from __future__ import annotations

from typing import Final

SAFETENSORS: Final = ".safetensors"
WEIGHT_SUFFIXES: Final = (
    SAFETENSORS,
    ".bin",
    ".ckpt",
    ".engine",
    ".gguf",
    ".ggml",
    ".h5",
    ".msgpack",
    ".npz",
    ".onnx",
    ".onnx_data",
    ".plan",
    ".pt",
    ".pth",
    ".tflite",
)


def is_weights_name(path: str) -> bool:
    """True if the name promises weights, so that empty or textual content is an error."""
    return path.lower().endswith(WEIGHT_SUFFIXES)
