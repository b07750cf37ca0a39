"""What was verified, as it is written beside the bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from modelcache_agent.decide.world import Origin
from modelcache_agent.tiers.layout import FORMAT, parse_blob_name
from modelcache_api.keys import describe_unsafe_path
from modelcache_api.manifest import (
    ContentDigest,
    ContentFile,
    ContentManifest,
    make_content_manifest,
)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One verified file: its content, and the inode that held it then.

    ctime is left out on purpose: hard links change it.
    """

    content: ContentFile
    blob: str
    inode: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One verified content. `verified_at` is in Unix seconds."""

    digest: ContentDigest
    files: tuple[FileRecord, ...]
    origins: tuple[Origin, ...]
    verified_at: float

    @property
    def manifest(self) -> ContentManifest:
        """The content manifest."""
        return make_content_manifest(record.content for record in self.files)


def encode_record(record: VersionRecord) -> bytes:
    """The record as a JSON document."""
    document = {
        "format": FORMAT,
        "contentDigest": record.digest,
        "verifiedAt": record.verified_at,
        "origins": [
            {"uid": o.uid, "sourceDigest": o.source_digest, "adopted": o.adopted}
            for o in record.origins
        ],
        "files": [
            {
                "path": file.content.path,
                "size": file.content.size_bytes,
                "sha256": file.content.sha256,
                "pieces": list(file.content.pieces),
                "blob": file.blob,
                "inode": file.inode,
                "mtimeNs": file.mtime_ns,
            }
            for file in record.files
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_record(data: bytes, expected_digest: str) -> VersionRecord:
    """The record that `encode_record` wrote.

    Raises:
        ValueError: it is damaged: not JSON, another format, or not a record of that digest.
    """
    try:
        record = _parse(json.loads(data))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the record lacks or misspells a field: {error!r}") from error
    if record.manifest.digest != record.digest or record.digest != expected_digest:
        raise ValueError("the record's files do not have the digest of its name")
    for file in record.files:
        unsafe = describe_unsafe_path(file.content.path)
        if unsafe is not None or parse_blob_name(file.blob) != file.content.sha256:
            raise ValueError("the record names a file that cannot be ours")
    return record


def _parse(document: dict[str, Any]) -> VersionRecord:
    if document["format"] != FORMAT:
        raise ValueError("the record has another format")
    return VersionRecord(
        digest=ContentDigest(document["contentDigest"]),
        verified_at=float(document["verifiedAt"]),
        origins=tuple(
            Origin(str(row["uid"]), str(row["sourceDigest"]), bool(row["adopted"]))
            for row in document["origins"]
        ),
        files=tuple(_parse_file(row) for row in document["files"]),
    )


def _parse_file(row: dict[str, Any]) -> FileRecord:
    content = ContentFile(
        str(row["path"]), int(row["size"]), str(row["sha256"]), tuple(row["pieces"])
    )
    return FileRecord(content, str(row["blob"]), int(row["inode"]), int(row["mtimeNs"]))
