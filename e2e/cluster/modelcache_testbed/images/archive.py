"""Writing a small image without any container engine: one layer, one file, OCI layout in a tar."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class SmallImage:
    """An image of a few files; the same input gives the same bytes."""

    reference: str
    files: Mapping[str, bytes]
    entrypoint: Sequence[str]
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()

    def write(self, path: Path) -> None:
        """Write the archive that ``ctr images import`` and ``docker load`` read."""
        layer = self._layer()
        architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Entrypoint": list(self.entrypoint),
                "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        config_blob = _json(config)
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, config_blob),
                "layers": [_descriptor(_LAYER, layer)],
            }
        )
        entry = _descriptor(_MANIFEST, manifest) | {
            "platform": {"architecture": architecture, "os": "linux"},
            "annotations": {
                "io.containerd.image.name": self.reference,
                "org.opencontainers.image.ref.name": self.reference.rpartition(":")[2],
            },
        }
        index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]})
        blobs = {f"blobs/sha256/{_digest(b)[7:]}": b for b in (layer, config_blob, manifest)}
        files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index}
        scratch = path.with_name(path.name + ".new")
        scratch.write_bytes(_tar({**files, **blobs}))
        scratch.replace(path)

    def _layer(self) -> bytes:
        return _tar(self.files, links=self.links, folders=self.folders, mode=0o755)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _tar(
    files: Mapping[str, bytes],
    *,
    links: Mapping[str, str] | None = None,
    folders: Sequence[str] = (),
    mode: int = 0o644,
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in folders:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
        for name, target in sorted((links or {}).items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            archive.addfile(entry)
    return buffer.getvalue()
