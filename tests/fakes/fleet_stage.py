"""A stage with many nodes and ModelCaches in pools, before two replicas of the operator."""

from __future__ import annotations

import asyncio
import itertools
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fakes.played_fleet import PlayedFleet, _bounded
from fakes.stage import Stage
from modelcache_kube import (
    LEASES,
    MODEL_CACHES,
    MODEL_VERSIONS,
    ApiUnavailable,
    ConnectConfig,
    connect,
)
from modelcache_testbed import Cluster, nodes
from modelcache_testbed.bucket import Bucket
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import Program, System

# At most 64 models are labelled on a node.
_MODELS_OF_A_POOL = 50
_SECONDS = 1200.0
_BUCKET = "fleet-cases"
_names = itertools.count()


class FleetStage(Stage):
    """Nodes and ModelCaches by number; those of one pool meet."""

    def __init__(self, *arguments: Any, caches: int) -> None:
        super().__init__(*arguments)
        self.caches = caches
        self.pools = -(-caches // _MODELS_OF_A_POOL)
        self.bucket = Bucket(self.store, _BUCKET)

    def pool_of(self, number: int) -> str:
        return f"p{number % self.pools}"

    def nodes_for(self, cache: int) -> list[str]:
        """The nodes of its pool."""
        return [
            name
            for number, name in enumerate(self.nodes)
            if self.pool_of(number) == self.pool_of(cache)
        ]

    async def _add_node(self, name: str) -> None:
        pool = self.pool_of(self.nodes.index(name))
        node = nodes.build_node(name, labels={"stage": self.name, "pool": pool})
        await asyncio.to_thread(self._create_arrived, node)

    async def fill(self, copies: int | str, numbers: Iterable[int] | None = None) -> None:
        """A ModelVersion with its own folder, and a ModelCache, for each number."""
        await self.add_versions(numbers)
        await self.place(copies, numbers)

    async def add_versions(self, numbers: Iterable[int] | None = None, **spec: Any) -> None:
        def put(number: int) -> None:
            self.bucket.put(f"m{number}/config.json", b"{}")

        async def add(number: int) -> None:
            await asyncio.to_thread(put, number)
            await self.apply_version(f"m{number}", uri=f"s3://{_BUCKET}/m{number}", **spec)

        await _bounded(add, self._numbers(numbers))

    async def place(self, copies: int | str, numbers: Iterable[int] | None = None) -> None:
        async def add(number: int) -> None:
            selector = {"stage": self.name, "pool": self.pool_of(number)}
            await self.apply_cache(f"c{number}", f"m{number}", copies=copies, nodeSelector=selector)

        await _bounded(add, self._numbers(numbers))

    def _numbers(self, numbers: Iterable[int] | None) -> list[int]:
        return list(range(self.caches) if numbers is None else numbers)

    async def statuses(self, resource: Any = MODEL_CACHES) -> dict[str, dict[str, Any]]:
        found = (await self.kube.list(resource, self.namespace)).items
        return {item["metadata"]["name"]: item.get("status", {}) for item in found}

    async def until_copies(self, wanted: Callable[[int], str]) -> None:
        """All ModelCaches tell these copies."""

        async def ask() -> dict[str, tuple[str, str]]:
            told = await self.statuses()
            pairs = {
                f"c{number}": (str(told.get(f"c{number}", {}).get("copiesSummary")), wanted(number))
                for number in range(self.caches)
            }
            return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

        await self.until_all(ask, {})

    async def until_all(self, question: Callable[[], Any], expected: Any) -> None:
        """As `until`, for questions that ask of many objects."""
        deadline = time.monotonic() + _SECONDS
        while True:
            answer = await question()
            if expected(answer) if callable(expected) else answer == expected:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"{str(answer)[:2000]}, not {expected!r}")
            await asyncio.sleep(1)

    async def delete_models(self) -> None:
        for resource in (MODEL_CACHES, MODEL_VERSIONS):
            names = (await self.statuses(resource)).keys()
            await _bounded(
                lambda name, kind=resource: self.kube.delete(kind, name, self.namespace), names
            )

    @property
    def replicas(self) -> tuple[Program, Program]:
        return self.system.operators["operator-0"], self.system.operators["operator-1"]

    async def leader(self) -> str:
        try:
            lease = await self.kube.get(LEASES, "modelcache-operator-leader", "modelcache-system")
        except ApiUnavailable:
            return ""
        return (lease or {}).get("spec", {}).get("holderIdentity") or ""


async def read_metrics(replica: Program) -> str:
    """What the replica says of itself; empty while it does not answer."""
    return await asyncio.to_thread(_read_metrics, replica)


def _read_metrics(replica: Program) -> str:
    (port,) = (a.partition("=")[2] for a in replica.argv if a.startswith("--http-port="))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@asynccontextmanager
async def open_fleet(
    cluster: Cluster, store: Seaweed, system: System, count: int, caches: int
) -> AsyncIterator[FleetStage]:
    """The stage with its nodes; all of it is gone afterwards."""
    config = ConnectConfig(kubeconfig=cluster.kubeconfig)
    async with connect(config) as kube, PlayedFleet(kube, renew_seconds=60) as fleet:
        name = f"fleet-{next(_names)}"
        stage = FleetStage(cluster, store, system, kube, fleet, name, caches=caches)
        await stage.prepare(count)
        try:
            yield stage
        finally:
            await stage.close()
