"""The CRDs on a real API server, and a hand to try objects with."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.crds.objects import MINIMAL, RESOURCES
from modelcache_kube import ConnectConfig, KubeClient, connect

CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="session")
def crds(cluster):
    """Every generated CRD, installed and established."""
    files = sorted(CRDS.glob("modelcache.io_*.yaml"))
    for file in files:
        cluster.apply(file)
    cluster.kubectl("wait", "--for=condition=Established", "crd", *(crd_name(f) for f in files))
    return cluster


def crd_name(file: Path) -> str:
    """`modelcache.io_plural.yaml` holds the CRD `plural.modelcache.io`."""
    group, plural = file.stem.split("_")
    return f"{plural}.{group}"


@pytest.fixture(scope="module")
def room(crds) -> Iterator[str]:
    """A namespace for the objects of one module."""
    name = f"crds-{secrets.token_hex(4)}"
    crds.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        crds.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
async def kube(cluster) -> AsyncIterator[KubeClient]:
    async with connect(ConnectConfig(kubeconfig=cluster.kubeconfig)) as client:
        yield client


class Hand:
    """Creates objects, changes them, and takes them away at the end."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self.made: list[tuple[str, str]] = []

    def place(self, kind: str) -> str | None:
        return self.namespace if RESOURCES[kind].namespaced else None

    async def create(self, kind: str, body: dict[str, Any], name: str | None = None) -> Any:
        name = name or f"t-{secrets.token_hex(6)}"
        metadata: dict[str, Any] = {"name": name}
        if self.place(kind):
            metadata["namespace"] = self.namespace
        made = await self.kube.create(RESOURCES[kind], {"metadata": metadata, **body})
        self.made.append((kind, name))
        return made

    async def patch(self, kind: str, name: str, body: dict[str, Any], subresource=None) -> Any:
        return await self.kube.merge_patch(
            RESOURCES[kind], name, body, namespace=self.place(kind), subresource=subresource
        )

    async def create_with_status(self, kind: str, status: dict[str, Any]) -> Any:
        made = await self.create(kind, MINIMAL[kind])
        return await self.patch(kind, made["metadata"]["name"], {"status": status}, "status")

    async def clean(self) -> None:
        for kind, name in self.made:
            with contextlib.suppress(Exception):
                await self.kube.delete(RESOURCES[kind], name, self.place(kind))


@pytest.fixture
async def hand(kube, room) -> AsyncIterator[Hand]:
    own = Hand(kube, room)
    yield own
    await own.clean()


@pytest.fixture
def get_json(crds):
    """`kubectl get -o json`."""
    return lambda *arguments: json.loads(crds.kubectl("get", *arguments, "-o", "json"))
