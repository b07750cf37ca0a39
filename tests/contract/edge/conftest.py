"""The operator's edge on a real API server, under the operator's own RBAC."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from contract.edge.grants_door import MODEL, Agent, Door
from modelcache_kube import ConnectConfig, KubeClient, connect
from modelcache_testbed.bucket import Bucket

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


@pytest.fixture(scope="module")
def bucket(seaweed):
    return Bucket(seaweed, f"grants-{secrets.token_hex(4)}")


@pytest.fixture
async def door(kube, system, seaweed, bucket):
    own = Door(kube, system, seaweed, bucket)
    await own.open()
    yield own
    await own.close()


@pytest.fixture
def make_agent(cluster, system, tmp_path):
    made = []

    def make(**more) -> Agent:
        made.append(Agent(cluster, system, tmp_path / secrets.token_hex(4), **more))
        return made[-1]

    yield make
    for agent in made:
        cluster.remove_node(agent.name)


@pytest.fixture
def agent(make_agent):
    return make_agent()


@pytest.fixture
async def entry(door, agent):
    """One version, wanted on the agent's node."""
    own = await door.add_version(MODEL)
    door.world.add_node(agent.name, agent.uid, [own])
    return own


@pytest.fixture(scope="module")
def tenants(cluster):
    names = [f"{name}-{secrets.token_hex(3)}" for name in ("search", "payments")]
    for name in names:
        cluster.create_namespace(name)
    yield names
    for name in names:
        cluster.delete_namespace(name)


@pytest.fixture
def make_pod(cluster, tmp_path):
    """Credentials of a pod, on a node or (None) on none."""

    def make(namespace, node=None):
        folder, app = tmp_path / secrets.token_hex(4), f"trainer-{secrets.token_hex(3)}"
        if node is None:
            return cluster.service_account_kubeconfig(namespace, "default", folder, app=app)
        return cluster.agent_credentials(node, namespace, "default", folder, app=app)

    return make


@pytest.fixture
def pod(make_pod, tenants):
    return make_pod(tenants[0])
