from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from contract.kube.relay import relay_before
from modelcache_kube import ConnectConfig, connect

FILES = Path(__file__).parents[3] / "charts" / "modelcache" / "files"
CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="session")
def room(cluster):
    """A namespace for the objects of all modules."""
    name = f"kube-{secrets.token_hex(4)}"
    cluster.create_namespace(name)
    try:
        yield name
    finally:
        cluster.delete_namespace(name)


@pytest.fixture(scope="session")
def installed(cluster):
    """CRDs, accounts and RBAC as the chart installs them."""
    for file in sorted(CRDS.glob("modelcache.io_*.yaml")):
        cluster.apply(file)
    cluster.apply(FILES / "accounts.yaml")
    for name in ("rbac-operator.yaml", "rbac-agent.yaml"):
        cluster.apply(FILES / name)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "cachenodes.modelcache.io")
    return cluster


@pytest.fixture
def requests():
    """(verb, plural, code) of every request that the fixture `kube` sent."""
    return []


@pytest.fixture
async def kube(cluster, requests):
    config = ConnectConfig(kubeconfig=cluster.kubeconfig)
    async with connect(config, on_request=lambda *told: requests.append(told)) as client:
        yield client


@pytest.fixture
async def relayed(cluster, tmp_path):
    """(relay, kubeconfig that goes through it)."""
    async with relay_before(cluster.kubeconfig, tmp_path) as both:
        yield both


@pytest.fixture
def name():
    return f"t-{secrets.token_hex(6)}"
