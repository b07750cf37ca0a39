"""The stand-in for the hub whose large files lie in a bucket.

The hub's routes are served by the tests' stand-in; it redirects to signed addresses of the object
store, so that no body passes through Python.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from fakes.hub_repositories import Blob, Repository
from fakes.hub_server import Cdn, HubServer

REPOSITORY = "org/model"
_URL_SECONDS = 3600


@dataclass(frozen=True)
class BucketBlob(Blob):
    """A large file whose body is an object of the bucket."""

    key: str
    length: int
    digest: str

    @property
    def size(self) -> int:
        return self.length

    @property
    def sha256(self) -> str:
        return self.digest


class _BucketCdn(Cdn):
    def __init__(self, client: Any, bucket: str) -> None:
        super().__init__(time.time)
        self._client = client
        self._bucket = bucket

    def sign(self, blob: Blob) -> str:
        if not isinstance(blob, BucketBlob):
            return super().sign(blob)
        where = {"Bucket": self._bucket, "Key": blob.key}
        return str(self._client.generate_presigned_url("get_object", where, _URL_SECONDS))


def make_bucket_hub(client: Any, bucket: str, files: Mapping[str, tuple[int, str]]) -> HubServer:
    """A hub with one public repository: a small file, and `files` (size, sha256) of the bucket.

    `client` signs for the address that is to serve the bodies.
    """
    hub = HubServer()
    hub.cdn = _BucketCdn(client, bucket)
    repository = Repository(REPOSITORY)
    commit = repository.commit({"config.json": b"{}"})
    repository.commits[commit] |= {
        key: BucketBlob(b"", is_large=True, key=key, length=size, digest=digest)
        for key, (size, digest) in files.items()
    }
    hub.repositories[REPOSITORY] = repository
    return hub


def hub_environment(hub: HubServer, home: Path) -> dict[str, str]:
    """What the hub's client reads. Its second protocol is off: the stand-in does not speak it."""
    return {
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "REPOSITORY": REPOSITORY,
    }
