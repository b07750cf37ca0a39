"""One agent process on a real API server, with a CacheNode by hand and a played operator."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.grants_server import GrantedVersion, GrantsServer
from fakes.range_server import RangeServer, Served
from modelcache_api.labels import make_node_label_key
from modelcache_testbed.cluster import Cluster
from modelcache_testbed.waiting import wait_until

NAMESPACE = "modelcache-system"
ACCOUNT = "modelcache-agent"
PREFIX = "cache.modelcache.io/"


@dataclass
class PlayedAgent:
    """Node, CacheNode, store and process of one name."""

    cluster: Cluster
    node: str
    folder: Path
    grants: GrantsServer
    objects: RangeServer
    entries: list[dict[str, Any]] = field(default_factory=list)
    caches: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    """Of all ModelCaches: the canary, its weight, what is held."""
    process: subprocess.Popen | None = None

    def prepare(self) -> None:
        created = self.cluster.add_node(self.node)
        self.uid = created["metadata"]["uid"]
        self.store = self.folder / "store"
        self.store.mkdir(parents=True, exist_ok=True)
        self.credentials = self.cluster.agent_credentials(
            self.node, NAMESPACE, ACCOUNT, self.folder
        )
        self.write_cache_node()

    def write_cache_node(self) -> None:
        self.cluster.apply(
            [
                {
                    "apiVersion": "modelcache.io/v1alpha1",
                    "kind": "CacheNode",
                    "metadata": {"name": self.node},
                    "spec": {
                        "nodeUid": self.uid,
                        "entries": self.entries,
                        "caches": [
                            {
                                "namespace": key.split("/")[0],
                                "name": key.split("/")[1],
                                "stableUid": uid,
                                **self.parts,
                            }
                            for key, uid in self.caches.items()
                        ],
                    },
                }
            ]
        )

    def add(self, uid: str, bodies: dict[str, bytes], **granted: Any) -> GrantedVersion:
        """A version that the node should hold; its content is not known yet."""
        version = GrantedVersion(bodies, etag=hashlib.sha256(uid.encode()).hexdigest(), **granted)
        self.grants.versions[uid] = version
        for path, body in bodies.items():
            self.objects.objects[f"{uid}/{path}"] = Served.of(body, version.etag)
        self.entries.append(
            {
                "uid": uid,
                "name": uid,
                "sourceDigest": version.source.digest,
                "sizeBytes": version.source.size_bytes,
            }
        )
        self.write_cache_node()
        return version

    def adopt(self, uid: str) -> str:
        """What the operator does once the content is known; the label's key."""
        version = self.grants.versions[uid]
        entry = next(entry for entry in self.entries if entry["uid"] == uid)
        key = make_node_label_key("models", uid, version.content_digest)
        entry |= {"contentDigest": version.content_digest, "labelKey": key}
        self.write_cache_node()
        return key

    def drop(self, uid: str) -> None:
        self.entries[:] = [entry for entry in self.entries if entry["uid"] != uid]
        self.write_cache_node()

    def start(self, *extra: str) -> None:
        command = [
            *(sys.executable, "-m", "modelcache_agent"),
            f"--node-name={self.node}",
            f"--store={self.store}",
            "--capacity=1Gi",
            f"--kubeconfig={self.credentials.kubeconfig}",
            f"--namespace={NAMESPACE}",
            f"--operator-url={self.grants.url}",
            f"--operator-ca-file={self.grants.write_ca(self.folder)}",
            f"--grant-token-file={self.credentials.grant_token_file}",
            "--metrics-port=0",
            # How full this machine's disk is, is none of its business.
            "--disk-high-watermark=100",
            *extra,
        ]
        log = (self.folder / "agent.log").open("ab")
        self.process = subprocess.Popen(
            command,
            stderr=log,
            stdout=log,
            env={
                "PATH": os.environ["PATH"],
                "HOME": "/nonexistent",
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """The exit code, and how long it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(30), time.monotonic() - began

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.cluster.api.delete(self.cache_node_path)
        self.cluster.remove_node(self.node)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def cache_node_path(self) -> str:
        return f"/apis/modelcache.io/v1alpha1/cachenodes/{self.node}"

    def status(self) -> dict[str, Any]:
        return self.cluster.api.get(self.cache_node_path).get("status", {})

    def entry(self, uid: str) -> dict[str, Any]:
        return next((e for e in self.status().get("entries", ()) if e["uid"] == uid), {})

    def labels(self) -> set[str]:
        node = self.cluster.api.get(f"/api/v1/nodes/{self.node}")
        return {key for key in node["metadata"]["labels"] if key.startswith(PREFIX)}

    def label_values(self) -> dict[str, str]:
        labels = self.cluster.api.get(f"/api/v1/nodes/{self.node}")["metadata"]["labels"]
        return {key: value for key, value in labels.items() if key.startswith(PREFIX)}

    def await_state(self, uid: str, state: str, seconds: float = 30) -> dict[str, Any]:
        wait_until(
            lambda: self.entry(uid).get("state") == state,
            seconds=seconds,
            what=f"{uid} to be {state}; it is {self.entry(uid)}",
        )
        return self.entry(uid)

    def await_labels(self, keys: set[str], seconds: float = 30) -> None:
        wait_until(lambda: self.labels() == keys, seconds=seconds, what=f"labels {keys}")
