"""The operator as a process on a real API server, with played agents and short ways to ask."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fakes.played_fleet import PlayedFleet, _bounded
from modelcache_kube import CACHE_NODES, MODEL_CACHES, MODEL_VERSIONS, NODES, KubeClient
from modelcache_testbed import Cluster, nodes
from modelcache_testbed.bucket import Bucket
from modelcache_testbed.models import (
    build_cache,
    build_namespace,
    build_secret,
    build_version,
    make_model,
)
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import System

PREFIX = "cache.modelcache.io/"
OPERATOR_USER = "system:serviceaccount:modelcache-system:modelcache-operator"


class Stage:
    """One test's own names on a shared cluster and operator."""

    def __init__(
        self,
        cluster: Cluster,
        store: Seaweed,
        system: System,
        kube: KubeClient,
        fleet: PlayedFleet,
        name: str,
    ) -> None:
        self.cluster, self.store, self.system = cluster, store, system
        self.kube, self.fleet, self.name = kube, fleet, name
        self.nodes: list[str] = []
        self.namespace = name

    async def prepare(self, nodes_: int = 0) -> None:
        await asyncio.to_thread(
            self.cluster.apply,
            [build_namespace(self.namespace)],
        )
        await asyncio.to_thread(self.cluster.apply, [build_secret(self.namespace, self.store)])
        await self.add_nodes(nodes_)

    def put_model(self) -> None:
        bucket = Bucket(self.store, "operator-tests")
        for path, body in make_model(10_000, 1).items():
            bucket.put(f"m/{path}", body)

    # --- users and kubelets ---------------------------------------------------------------

    async def add_nodes(self, count: int, *, agent: bool = True, **options: Any) -> list[str]:
        first = len(self.nodes)
        added = [f"{self.name}-n{first + number:03}" for number in range(count)]
        self.nodes += added
        await _bounded(self._add_node, added)
        if agent:
            await self.fleet.add(*added, **options)
        return added

    async def _add_node(self, name: str) -> None:
        node = nodes.build_node(name, labels={"stage": self.name})
        await asyncio.to_thread(self._create_arrived, node)

    def _create_arrived(self, node: dict[str, Any]) -> None:
        # The node controller takes the taints of arrival off in its own time: after an outage of
        # the API server in minutes.
        api = self.cluster.api
        nodes.create_node(api, node)
        api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": None}})

    async def remove_node(self, name: str) -> None:
        self.fleet.forget(name)
        await asyncio.to_thread(self.cluster.remove_node, name)

    async def apply_version(self, name: str = "m1", *, endpoint: str = "", **spec: Any) -> None:
        document = build_version(
            self.namespace,
            name,
            spec.pop("uri", "s3://operator-tests/m"),
            endpoint or self.store.endpoint,
            **spec,
        )
        await self._apply(MODEL_VERSIONS, document)

    async def apply_cache(self, name: str = "c1", version: str = "m1", **placement: Any) -> None:
        placement.setdefault("nodeSelector", {"stage": self.name})
        await self._apply(MODEL_CACHES, build_cache(self.namespace, name, version, **placement))

    async def _apply(self, resource: Any, document: Mapping[str, Any]) -> None:
        await self.kube.apply(resource, document, field_manager="a-user")

    async def delete_cache(self, name: str = "c1") -> None:
        await self.kube.delete(MODEL_CACHES, name, self.namespace)

    async def delete_version(self, name: str = "m1") -> None:
        await self.kube.delete(MODEL_VERSIONS, name, self.namespace)

    # --- asking ---------------------------------------------------------------------------

    async def cache(self, name: str = "c1") -> dict[str, Any]:
        return await self.kube.get(MODEL_CACHES, name, self.namespace) or {}

    async def version(self, name: str = "m1") -> dict[str, Any]:
        return await self.kube.get(MODEL_VERSIONS, name, self.namespace) or {}

    async def cache_node(self, name: str) -> dict[str, Any] | None:
        return await self.kube.get(CACHE_NODES, name)

    async def ready(self, name: str = "c1") -> tuple[str, str]:
        return _condition(await self.cache(name), "Ready")

    async def stalled(self, name: str = "c1") -> str:
        return _condition(await self.cache(name), "Stalled")[0]

    async def version_ready(self, name: str = "m1") -> tuple[str, str]:
        return _condition(await self.version(name), "Ready")

    async def version_source(self, name: str = "m1") -> tuple[str, str]:
        return _condition(await self.version(name), "SourceCurrent")

    async def patch_version(self, spec: Mapping[str, Any], name: str = "m1") -> None:
        body = {"spec": spec}
        await self.kube.merge_patch(MODEL_VERSIONS, name, body, namespace=self.namespace)

    async def node_ready(self, name: str) -> tuple[str, str]:
        return _condition(await self.cache_node(name) or {}, "Ready")

    async def disk_pressure(self, name: str) -> tuple[str, str]:
        return _condition(await self.cache_node(name) or {}, "DiskPressure")

    async def copies(self, name: str = "c1") -> str:
        return str((await self.cache(name)).get("status", {}).get("copiesSummary"))

    async def in_tier(self, name: str = "c1") -> int:
        """Verified copies in the tier that the ModelCache wants."""
        return int((await self.cache(name)).get("status", {}).get("copies", {}).get("inTier", 0))

    async def holders(self, cache: str = "c1") -> set[str]:
        """Nodes whose CacheNode names the ModelCache."""
        found = set()
        for item in (await self.kube.list(CACHE_NODES)).items:
            for ref in item["spec"].get("caches", ()):
                if (ref["namespace"], ref["name"]) == (self.namespace, cache):
                    found.add(item["metadata"]["name"])
        return found

    async def labels(self, names: Iterable[str] | None = None) -> dict[str, set[str]]:
        """Our labels on this stage's nodes; nodes without any are left out."""
        wanted = set(self.nodes if names is None else names)
        found = {}
        for item in (await self.kube.list(NODES, label_selector=f"stage={self.name}")).items:
            keys = {key for key in item["metadata"]["labels"] if key.startswith(PREFIX)}
            if keys and item["metadata"]["name"] in wanted:
                found[item["metadata"]["name"]] = keys
        return found

    async def metrics(self) -> str:
        return await asyncio.to_thread(self._fetch, "/metrics")

    async def probe(self, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            try:
                return 200, self._fetch(path)
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
            except OSError as error:
                return 0, str(error)

        return await asyncio.to_thread(ask)

    def _fetch(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.system.operator_http_port}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())

    # --- waiting --------------------------------------------------------------------------

    async def until(
        self, question: Callable[[], Any], expected: Any, *, seconds: float = 30
    ) -> None:
        """Ask until the answer is the expected one, or satisfies the expected predicate."""
        deadline = time.monotonic() + seconds
        while True:
            answer = await question()
            if expected(answer) if callable(expected) else answer == expected:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"after {seconds} s: {answer!r}, not {expected!r}")
            await asyncio.sleep(0.2)

    async def until_cached(self, name: str = "c1", *, copies: str, seconds: float = 30) -> None:
        try:
            await self.until(lambda: self.copies(name), copies, seconds=seconds)
            await self.until(lambda: self.ready(name), ("True", "Cached"), seconds=seconds)
        except AssertionError:
            print(json.dumps((await self.cache(name)).get("status"), indent=1))
            print(await asyncio.to_thread(self.cluster.kubectl, "get", "cachenodes,nodes"))
            print("the fleet's errors:", self.fleet.errors)
            raise

    # --- end ------------------------------------------------------------------------------

    async def close(self) -> None:
        for resource in (MODEL_CACHES, MODEL_VERSIONS):
            for item in (await self.kube.list(resource, self.namespace)).items:
                await self.kube.delete(resource, item["metadata"]["name"], self.namespace)
        for name in self.nodes:
            self.fleet.forget(name)
        await _bounded(lambda name: asyncio.to_thread(self.cluster.remove_node, name), self.nodes)
        await asyncio.to_thread(self.cluster.delete_namespace, self.namespace)


def _condition(found: Mapping[str, Any], kind: str) -> tuple[str, str]:
    for condition in found.get("status", {}).get("conditions", ()):
        if condition["type"] == kind:
            return condition["status"], condition["reason"]
    return "", ""
