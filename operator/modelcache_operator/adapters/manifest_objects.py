"""How a packed manifest is laid out in ConfigMaps: pure.

A manifest is a *head* and its *parts*. Parts hold the bytes and are named by the digest of all
bytes, so that two writers of different manifests never touch one another's. The head is small,
names the digest and the number of parts, and is created last: it exists only for a complete
manifest, and creating it is the one atomic step.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from modelcache_api import names
from modelcache_api.manifest import (
    ContentManifest,
    SourceManifest,
    digest_hex,
    digest_of_bytes,
    pack_content,
    pack_source,
)
from modelcache_operator.adapters.keyed_data import decode_base64
from modelcache_operator.decide.world import Uid

# A ConfigMap holds at most 1 MiB; the rest is for its metadata.
MAX_PART_BYTES: Final = 900 * 1024
_DATA_KEY: Final = "manifest"
_PARTS_KEY: Final = "parts"
_DIGEST_KEY: Final = "digest"
_NAME_HEX: Final = 32

Object = dict[str, Any]


class Kind(StrEnum):
    """Values of LABEL_MANIFEST_KIND."""

    SOURCE = "source"
    CONTENT = "content"
    PART = "part"


@dataclass(frozen=True, slots=True)
class PackedManifest:
    """A manifest to be kept. `digest` is the manifest's own, `stored_digest` that of its bytes."""

    uid: Uid
    kind: Kind
    digest: str
    stored_digest: str
    data: bytes = field(repr=False)


def pack_manifest(uid: Uid, manifest: SourceManifest | ContentManifest) -> PackedManifest:
    """The manifest as it is stored. Takes seconds for the largest: not for the event loop."""
    if isinstance(manifest, SourceManifest):
        kind, data = Kind.SOURCE, pack_source(manifest)
    else:
        kind, data = Kind.CONTENT, pack_content(manifest)
    return PackedManifest(uid, kind, manifest.digest, digest_of_bytes(data), data)


@dataclass(frozen=True, slots=True)
class Head:
    """What a head says. It may lie only if somebody tampered with it."""

    digest: str
    stored_digest: str
    parts: int


def source_head_name(uid: Uid, digest: str) -> str:
    """One for each (version, source digest): a source may be resolved again before its first use.

    Raises:
        ValueError: it is no digest.
    """
    return f"modelcache-source-{uid}-{digest_hex(digest)[:_NAME_HEX]}"


def content_head_name(uid: Uid) -> str:
    """One for each version: whoever creates it decides the content."""
    return f"modelcache-content-{uid}"


def part_names(uid: Uid, stored_digest: str, number: int) -> list[str]:
    """Names of the parts, in order.

    Raises:
        ValueError: it is no digest.
    """
    stem = f"modelcache-part-{uid}-{digest_hex(stored_digest)[:_NAME_HEX]}"
    return [f"{stem}-{index}" for index in range(number)]


def build_parts(packed: PackedManifest, namespace: str) -> list[Object]:
    """The ConfigMaps that hold the bytes."""
    size = MAX_PART_BYTES
    pieces = [packed.data[start : start + size] for start in range(0, len(packed.data), size)]
    part_names_ = part_names(packed.uid, packed.stored_digest, len(pieces))
    return [
        _config_map(name, namespace, packed.uid, Kind.PART)
        | {"binaryData": {_DATA_KEY: base64.b64encode(piece).decode("ascii")}}
        for name, piece in zip(part_names_, pieces, strict=True)
    ]


def build_head(packed: PackedManifest, namespace: str, parts: int) -> Object:
    """The ConfigMap whose creation makes the manifest exist."""
    is_source = packed.kind is Kind.SOURCE
    name = (
        source_head_name(packed.uid, packed.digest) if is_source else content_head_name(packed.uid)
    )
    head = _config_map(name, namespace, packed.uid, packed.kind)
    head["metadata"]["annotations"] = {names.ANNOTATION_MANIFEST_DIGEST: packed.stored_digest}
    return head | {"data": {_PARTS_KEY: str(parts), _DIGEST_KEY: packed.digest}}


def parse_head(found: Mapping[str, Any]) -> Head:
    """What the head says.

    Raises:
        ValueError: it is damaged.
    """
    data = found.get("data") or {}
    annotations = found["metadata"].get("annotations") or {}
    stored = annotations.get(names.ANNOTATION_MANIFEST_DIGEST, "")
    digest_hex(stored)
    digest_hex(data.get(_DIGEST_KEY, ""))
    return Head(digest=data[_DIGEST_KEY], stored_digest=stored, parts=int(data.get(_PARTS_KEY, "")))


def parse_part(found: Mapping[str, Any]) -> bytes:
    """The bytes of a part; empty if it holds none."""
    return decode_base64((found.get("binaryData") or {}).get(_DATA_KEY, ""))


def uid_of(found: Mapping[str, Any]) -> Uid:
    """The version that a head or part belongs to."""
    return Uid((found["metadata"].get("labels") or {}).get(names.LABEL_MANIFEST_OF, ""))


def kind_of(found: Mapping[str, Any]) -> str:
    """Which kind of object it is; empty if it does not say."""
    return str((found["metadata"].get("labels") or {}).get(names.LABEL_MANIFEST_KIND, ""))


def _config_map(name: str, namespace: str, uid: Uid, kind: Kind) -> Object:
    labels = {names.LABEL_MANIFEST_OF: uid, names.LABEL_MANIFEST_KIND: kind.value}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "immutable": True,
    }
