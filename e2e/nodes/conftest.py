"""The cluster of real nodes under test, and a pod on every node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modelcache_testbed import Cluster, LocalCluster
from modelcache_testbed.web_servers import WebServers


@pytest.fixture(scope="module")
def web(nodes_cluster: Cluster) -> Iterator[WebServers]:
    started = WebServers.start_on(nodes_cluster)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def own_nodes(nodes_cluster: Cluster) -> LocalCluster:
    """The cluster whose machines tests may take away; skips on a foreign one."""
    if not isinstance(nodes_cluster, LocalCluster):
        pytest.skip("this test takes nodes away, and these are not ours")
    return nodes_cluster
