"""Files that repeat the safetensors of their folder in another format: pure.

They are left out where a version names no `include`. A file goes only if safetensors lie beside it,
because repositories mix formats: one part has safetensors, the next one only a `.bin`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from modelcache_api.keys import matches

# Beside safetensors: the same weights for other libraries, with their indexes, and what training
# left behind.
COPIES: Final = (
    "*.bin",
    "*.bin.index.json",
    "*.ckpt",
    "*.gguf",
    "*.h5",
    "*.h5.index.json",
    "*.msgpack",
    "*.msgpack.index.json",
    "*.onnx",
    "*.onnx_data",
    "*.ot",
    "*.pt",
    "*.pth",
    "*.tflite",
    ".gitattributes",
    ".gitignore",
)
# Whole folders of exports, below a folder with safetensors.
EXPORTS: Final = frozenset({"coreml", "metal", "onnx", "openvino", "original"})
_SAFETENSORS: Final = ".safetensors"


def find_duplicates(paths: Iterable[str]) -> frozenset[str]:
    """Those of the paths that only repeat what lies in safetensors. None without safetensors."""
    every = tuple(paths)
    holders = frozenset(_folder_of(path) for path in every if path.endswith(_SAFETENSORS))
    return frozenset(path for path in every if _is_copy(path, holders) or _is_export(path, holders))


def _is_copy(path: str, holders: frozenset[str]) -> bool:
    return _folder_of(path) in holders and any(matches(path, glob) for glob in COPIES)


def _is_export(path: str, holders: frozenset[str]) -> bool:
    parts = path.split("/")
    return any(
        part in EXPORTS and "/".join(parts[:depth]) in holders
        for depth, part in enumerate(parts[:-1])
    )


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]
