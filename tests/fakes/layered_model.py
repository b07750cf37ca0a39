"""A model of layers in three shards with an index, as transformers writes it."""

from __future__ import annotations

import json
import random
import struct

MIB = 1 << 20
SHARDS = {
    "model-00001-of-00003.safetensors": {
        "embed.weight": 3 * MIB,
        "layers.0.bias": 4096,
        "layers.0.weight": 2 * MIB,
    },
    "model-00002-of-00003.safetensors": {
        "layers.1.bias": 4096,
        "layers.1.weight": 26 * MIB,
        "layers.2.bias": 4096,
        "layers.2.weight": 5 * MIB,
    },
    "model-00003-of-00003.safetensors": {"head.weight": 2 * MIB},
}
INDEX = "model.safetensors.index.json"


def tensor_bytes(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


def shard_body(tensors: dict[str, int]) -> bytes:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, size in tensors.items():
        offsets = [len(data), len(data) + size]
        header[name] = {"dtype": "F32", "shape": [size // 4], "data_offsets": offsets}
        data += tensor_bytes(name, size)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def model_files() -> dict[str, bytes]:
    """Path and body of every file."""
    names = {name: shard for shard, tensors in SHARDS.items() for name in tensors}
    total = sum(size for tensors in SHARDS.values() for size in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": names}
    shards = {shard: shard_body(tensors) for shard, tensors in SHARDS.items()}
    return {"config.json": b"{}", INDEX: json.dumps(index).encode(), **shards}
