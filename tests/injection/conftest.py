"""A namespace with the ModelCaches that the table of pods speaks of."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from injection.pods import CACHES

CRDS = Path(__file__).parents[2] / "crds"
API = "/apis/modelcache.io/v1alpha1"


@pytest.fixture(scope="session")
def served(cluster):
    """The cluster with our kinds."""
    for file in sorted(CRDS.glob("modelcache.io_*.yaml")):
        cluster.apply(file)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "modelcaches.modelcache.io")
    return cluster


@pytest.fixture(scope="session")
def room(served):
    """The namespace of the table, with its ModelCaches and their status."""
    name = f"inject-{secrets.token_hex(4)}"
    served.create_namespace(name)
    for cache in CACHES:
        put_cache(served, name, cache, CACHES[cache])
    try:
        yield name
    finally:
        served.delete_namespace(name)


def put_cache(cluster, namespace, name, known):
    """A ModelCache with the status that the operator would write."""
    path = f"{API}/namespaces/{namespace}/modelcaches"
    cluster.api.create(
        path,
        {
            "apiVersion": "modelcache.io/v1alpha1",
            "kind": "ModelCache",
            "metadata": {"name": name},
            "spec": {"stable": {"modelVersion": "v"}},
        },
    )
    if not known.label_keys and not known.is_warm:
        return
    tracks = [
        {"name": track, "modelVersion": "v", "nodeLabelKey": key}
        for track, key in known.label_keys.items()
    ] or [{"name": "stable", "modelVersion": "v"}]
    copies = {"wanted": 2, "placed": 2, "ready": 0, "failed": 1 if known.is_warm else 2}
    status = {"tracks": tracks, "copies": copies}
    cluster.api.patch(f"{path}/{name}/status", {"status": status})


class Door:
    """Creates pods in a namespace without keeping them, and shows what would have been kept."""

    def __init__(self, cluster, namespace):
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

    def pass_through(self, pod):
        """Labels, annotations and spec as the API server would store them."""
        # A token's volume has a random name.
        spec = pod["spec"] | {"automountServiceAccountToken": False}
        stored = self._cluster.api.create(self._path, pod | {"spec": spec})
        metadata = stored["metadata"]
        return {
            "labels": metadata.get("labels", {}),
            "annotations": metadata.get("annotations", {}),
            "spec": stored["spec"],
        }


@pytest.fixture(scope="session")
def door(served, room):
    return Door(served, room)
