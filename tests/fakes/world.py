"""A whole ModelCache under test: cluster, store, operator and agents, and short ways to ask it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from modelcache_testbed import Cluster
from modelcache_testbed.bucket import Bucket, hash_tree
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.models import (
    build_cache,
    build_namespace,
    build_secret,
    build_version,
    make_model,
)
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import System
from modelcache_testbed.waiting import wait_until

API = "/apis/modelcache.io/v1alpha1"
PREFIX = "cache.modelcache.io/"


class World:
    """One system on its own nodes. Names are prefixed, so that worlds do not meet."""

    def __init__(self, cluster: Cluster, store: Seaweed, system: System, name: str) -> None:
        self.cluster = cluster
        self.store = store
        self.system = system
        self.name = name
        self.nodes: list[str] = []
        self.namespaces: list[str] = []
        self.bucket = Bucket(store, f"{name}-models")

    # --- bringing things up ---------------------------------------------------------------

    def add_node(
        self, suffix: str, *, agent: bool = True, capacity: str = "1Gi", **more: Any
    ) -> str:
        node = f"{self.name}-{suffix}"
        labels = {"world": self.name, **more.pop("labels", {})}
        self.cluster.add_node(node, labels=labels, **more)
        self.nodes.append(node)
        if agent:
            self.system.add_agent(node, capacity=capacity)
        return node

    def add_namespace(self, suffix: str) -> str:
        namespace = f"{self.name}-{suffix}"
        self.cluster.apply([build_namespace(namespace)])
        self.namespaces.append(namespace)
        self.cluster.apply([build_secret(namespace, self.store)])
        return namespace

    def put_model(
        self, prefix: str, *, size_bytes: int = 3_000_000, seed: int = 1
    ) -> dict[str, str]:
        digests = {}
        for path, body in make_model(size_bytes, seed).items():
            self.bucket.put(f"{prefix}/{path}", body)
            digests[path] = hashlib.sha256(body).hexdigest()
        return digests

    def uri(self, prefix: str) -> str:
        return f"s3://{self.bucket.name}/{prefix}"

    def apply_version(
        self, namespace: str, name: str, prefix: str, *, endpoint: str | None = None, **spec: Any
    ) -> None:
        document = build_version(
            namespace, name, self.uri(prefix), endpoint or self.store.endpoint, **spec
        )
        self.cluster.apply([document])

    def apply_cache(self, namespace: str, name: str, version: str, **placement: Any) -> None:
        placement.setdefault("nodeSelector", {"world": self.name})
        self.cluster.apply([build_cache(namespace, name, version, **placement)])

    # --- asking ---------------------------------------------------------------------------

    def version(self, namespace: str, name: str) -> dict[str, Any]:
        return self.cluster.api.get(f"{API}/namespaces/{namespace}/modelversions/{name}")

    def cache(self, namespace: str, name: str) -> dict[str, Any]:
        return self.cluster.api.get(f"{API}/namespaces/{namespace}/modelcaches/{name}")

    def cache_node(self, node: str) -> dict[str, Any] | None:
        return self.cluster.api.find(f"{API}/cachenodes/{node}")

    def ready_of(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        found = self.cluster.api.find(f"{API}/namespaces/{namespace}/{kind}/{name}") or {}
        return find_condition(found.get("status", {}), "Ready")

    def labels(self, node: str) -> dict[str, str]:
        found = self.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"].get("labels", {})
        return {key: value for key, value in found.items() if key.startswith(PREFIX)}

    def label_key(self, namespace: str, version: str) -> str | None:
        key = self.version(namespace, version).get("status", {}).get("nodeLabelKey")
        return None if key is None else str(key)

    def warm_nodes(self, namespace: str, version: str) -> set[str]:
        key = self.label_key(namespace, version)
        return {node for node in self.nodes if key in self.labels(node)}

    def entries(self, node: str) -> dict[str, dict[str, Any]]:
        found = self.cache_node(node) or {}
        return {entry["uid"]: entry for entry in found.get("status", {}).get("entries", [])}

    def trees(self, node: str) -> dict[str, dict[str, str]]:
        """Published trees of a node: folder -> relative path -> sha256."""
        versions = self.system.store_of(node) / "versions"
        if not versions.exists():
            return {}
        return {
            tree.name: hash_tree(tree)
            for tree in versions.iterdir()
            if tree.is_dir() and not tree.name.startswith(".")
        }

    def files_left(self, node: str) -> list[str]:
        """Everything with bytes in a node's store, wherever it hides."""
        store = self.system.store_of(node)
        folders = ("blobs", "partial", "versions", "released", "quarantine")
        return [
            path.relative_to(store).as_posix()
            for folder in folders
            for path in (store / folder).rglob("*")
            if path.is_file()
        ]

    # --- waiting --------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        wait_until(condition, seconds=seconds, what=what, interval_seconds=0.1)

    def wait_ready(
        self, namespace: str, name: str, *, copies: int | None = None, seconds: float = 90
    ) -> dict[str, Any]:
        def is_ready() -> bool:
            status = self.cache(namespace, name).get("status", {})
            ready = find_condition(status, "Ready").get("status") == "True"
            return ready and (copies is None or status["copies"]["ready"] == copies)

        try:
            self.wait(is_ready, f"{namespace}/{name} Ready with {copies} copies", seconds)
        except Exception:
            print(self.describe(namespace, name))
            raise
        return self.cache(namespace, name)["status"]

    def wait_reason(
        self, kind: str, namespace: str, name: str, reason: str, *, seconds: float = 60
    ) -> dict[str, Any]:
        try:
            self.wait(
                lambda: self.ready_of(kind, namespace, name).get("reason") == reason,
                f"{kind} {namespace}/{name} with reason {reason}",
                seconds,
            )
        except Exception:
            print(self.describe(namespace, name))
            raise
        return self.ready_of(kind, namespace, name)

    def wait_gone(self, *nodes: str, seconds: float = 60) -> None:
        self.wait(
            lambda: all(not self.labels(node) and not self.files_left(node) for node in nodes),
            f"no label and no byte on {nodes}",
            seconds,
        )

    def stays(self, condition: Callable[[], bool], seconds: float) -> bool:
        """True if the condition holds all the time; for 'nothing happens' claims."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not condition():
                return False
            time.sleep(0.1)
        return True

    def describe(self, namespace: str, name: str) -> str:
        return self.cluster.kubectl(
            "get", "modelcaches,modelversions,cachenodes", "-n", namespace, "-o", "yaml"
        )

    # --- end ------------------------------------------------------------------------------

    def close(self) -> None:
        for namespace in self.namespaces:
            for kind in ("modelcaches", "modelversions"):
                for item in self.cluster.api.get(f"{API}/namespaces/{namespace}/{kind}")["items"]:
                    name = item["metadata"]["name"]
                    self.cluster.api.delete(f"{API}/namespaces/{namespace}/{kind}/{name}")
        self.system.stop()
        for node in self.nodes:
            self.cluster.remove_node(node)
            self.cluster.api.delete(f"{API}/cachenodes/{node}")
        for namespace in self.namespaces:
            self.cluster.delete_namespace(namespace)


def body_bytes(counts: Mapping[str, Any]) -> int:
    """Sum of the body bytes that a fault proxy counted."""
    return sum(int(count) for count in counts.values())
