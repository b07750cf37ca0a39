"""The operator's edge on a real API server, under the operator's own RBAC."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from modelcache_kube import ConnectConfig, KubeClient, connect

CHART = Path(__file__).parents[3] / "charts" / "modelcache" / "files"
SYSTEM = "modelcache-system"


def in_namespace(document, namespace):
    """The chart's document, moved from its namespace to the test's."""
    return yaml.safe_load(yaml.safe_dump(document).replace(SYSTEM, namespace))


@pytest.fixture(scope="session")
def system(cluster):
    """A namespace with the accounts and roles that the chart gives operator and agents."""
    namespace = f"edge-{secrets.token_hex(4)}"
    documents = [
        in_namespace(document, namespace)
        for file in ("accounts.yaml", "rbac-operator.yaml")
        for document in yaml.safe_load_all((CHART / file).read_text())
    ]
    for document in documents:
        if document["kind"].startswith("Cluster"):
            document["metadata"]["name"] += f"-{namespace}"
        if document["kind"] == "ClusterRoleBinding":
            document["roleRef"]["name"] += f"-{namespace}"
    cluster.apply(documents)
    yield namespace
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def operator_kubeconfig(cluster, system, tmp_path_factory):
    folder = tmp_path_factory.mktemp("operator")
    return cluster.service_account_kubeconfig(system, "modelcache-operator", folder).kubeconfig


@pytest.fixture
async def kube(operator_kubeconfig) -> AsyncIterator[KubeClient]:
    """The API server with the operator's rights and no others."""
    async with connect(ConnectConfig(kubeconfig=operator_kubeconfig)) as client:
        yield client
