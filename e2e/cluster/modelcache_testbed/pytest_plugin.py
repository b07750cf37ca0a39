"""Fixtures: a cluster, an object store, a namespace.

Load them with ``-p modelcache_testbed.pytest_plugin``.
``--kubeconfig`` or KUBECONFIG_UNDER_TEST runs the same tests on a cluster that is there already.
Without either, an instance of one's own is brought up and removed; should the run be killed, the
next one removes it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modelcache_testbed.cluster import Cluster
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import cache_folder, clusters_folder
from modelcache_testbed.instance import Instance
from modelcache_testbed.local_cluster import LocalCluster
from modelcache_testbed.real_nodes.machine import require_machine
from modelcache_testbed.seaweed import Seaweed

if TYPE_CHECKING:
    from collections.abc import Iterator

API_SERVER = "kube-apiserver"
KUBECONFIG_VARIABLE = "KUBECONFIG_UNDER_TEST"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names a cluster to test on."""
    parser.addoption(
        "--kubeconfig",
        default=os.environ.get(KUBECONFIG_VARIABLE),
        help="run cluster tests on this cluster instead of one brought up for the run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of tests that run containers."""
    config.addinivalue_line(
        "markers", "nodes: needs real nodes: root on a machine with cgroup v1, or a KUBECONFIG"
    )


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give the cluster under test."""
    given = request.config.getoption("--kubeconfig")
    if given:
        yield Cluster(Path(given))
        return
    LocalCluster.reap()
    own = LocalCluster.ephemeral()
    try:
        own.up(ephemeral=True)
        yield own
    finally:
        own.down()


@pytest.fixture
def local_cluster(cluster: Cluster) -> Iterator[LocalCluster]:
    """Give the cluster where tests may stop its components; skips on a foreign one."""
    if not isinstance(cluster, LocalCluster):
        pytest.skip("this test stops components of the cluster, and this one is not ours")
    before = cluster.status()[API_SERVER]
    yield cluster
    if cluster.status()[API_SERVER] != before:
        # After an outage they back off for up to minutes, at the expense of the tests that follow.
        cluster.restart("kube-controller-manager", "kube-scheduler")


@pytest.fixture(scope="session")
def nodes_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give a cluster of three real nodes: the one that is given, else one of the run's own."""
    given = request.config.getoption("--kubeconfig")
    if given:
        folder = Path(given).absolute().parent
        ours = Instance(folder).exists
        yield LocalCluster(folder) if ours else Cluster(Path(given))
        return
    try:
        require_machine([clusters_folder(), cache_folder()])
    except TestbedError as error:
        pytest.skip(str(error))
    LocalCluster.reap()
    own = LocalCluster.ephemeral(profile="nodes")
    try:
        own.up(ephemeral=True)
        yield own
    finally:
        own.down()


@pytest.fixture(scope="session")
def seaweed() -> Iterator[Seaweed]:
    """Give an object store of the run's own."""
    Seaweed.reap()
    own = Seaweed.ephemeral()
    try:
        own.up(ephemeral=True)
        yield own
    finally:
        own.down()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Give a namespace of the test's own."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.create_namespace(name)
    try:
        yield name
    finally:
        cluster.delete_namespace(name)
