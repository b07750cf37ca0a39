"""Small valid models of random bytes, and the documents that ask for them."""

from __future__ import annotations

import json
import random
from typing import Any

from modelcache_testbed.seaweed import Seaweed

_GROUP_VERSION = "modelcache.io/v1alpha1"


def make_safetensors(size_bytes: int, seed: int) -> bytes:
    """A valid safetensors file of about that size (8-aligned), with bytes drawn from the seed."""
    count = max(8, size_bytes - 128) // 8 * 8
    tensor = {"dtype": "U8", "shape": [count], "data_offsets": [0, count]}
    header = json.dumps({"weight": tensor}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + random.Random(seed).randbytes(count)


def make_model(size_bytes: int, seed: int) -> dict[str, bytes]:
    """Files of a model: weights of about that size, a config, and a nested folder."""
    config = json.dumps({"seed": seed}).encode()
    return {
        "config.json": config,
        "model.safetensors": make_safetensors(size_bytes, seed),
        "1_Pooling/config.json": config,
    }


def build_namespace(name: str) -> dict[str, Any]:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def build_secret(namespace: str, store: Seaweed, name: str = "models-s3") -> dict[str, Any]:
    """The store's keys as a credentials Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {
            "AWS_ACCESS_KEY_ID": store.access_key,
            "AWS_SECRET_ACCESS_KEY": store.secret_key,
        },
    }


def build_version(
    namespace: str,
    name: str,
    uri: str,
    endpoint: str,
    *,
    secret: str | None = "models-s3",
    model: str = "test/model",
    recheck_interval: str | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A ModelVersion; further spec fields by keyword."""
    source: dict[str, Any] = {"uri": uri, "endpoint": endpoint}
    if secret is not None:
        source["credentialsSecretRef"] = {"name": secret}
    if recheck_interval is not None:
        source["recheckInterval"] = recheck_interval
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": "ModelVersion",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": model, "source": source, **spec},
    }


def build_cache(
    namespace: str, name: str, version: str, *, tier: str = "Disk", **placement: Any
) -> dict[str, Any]:
    """A ModelCache; fields of its placement by keyword."""
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": "ModelCache",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"stable": {"modelVersion": version}, "tier": tier, "placement": placement},
    }
