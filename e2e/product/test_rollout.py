"""The tutorial's second version, on real nodes: a share, back, promoted, and back again."""

from __future__ import annotations

import pytest

from modelcache_testbed import wait_until
from modelcache_testbed.bucket import hash_tree
from modelcache_testbed.product import AGENTS, SYSTEM, TEAM

pytestmark = pytest.mark.nodes

FETCHED = "modelcache_agent_fetch_network_bytes_total"
V1, V2 = "minilm-v1", "minilm-v2"


def row(said):
    """The cells of the ModelCache's line."""
    (found,) = [line.split() for line in said.splitlines() if line.split()[:1] == ["minilm"]]
    return found


def fetched_on(product, nodes):
    """What the agents of these nodes have fetched."""
    told = product.metric(FETCHED)
    pods = product.pods(SYSTEM, AGENTS)
    return {
        pod["spec"]["nodeName"]: told[pod["metadata"]["name"]]
        for pod in pods
        if pod["spec"]["nodeName"] in nodes
    }


def test_a_second_version_takes_a_share_and_running_pods_see_it(product):
    # A pod on another node may have made it fetch the model for itself.
    warm = product.warm_nodes()
    said = product.follow("Roll out a second version")
    assert row(said)[1:5] == [V1, V2, "75/25", "2/2"]
    assert "training.json" in said.splitlines()
    wait_until(
        lambda: len(product.warm_nodes(version=V2)) == 2, seconds=60, what="the second's labels"
    )
    assert product.warm_nodes(version=V2) <= warm == product.warm_nodes()


def test_back_over_and_back_again_reads_nothing_and_moves_pods_only_when_they_are_made_anew(
    product,
):
    both = product.warm_nodes(version=V2)
    fetched = fetched_on(product, both)
    assert len(both & product.warm_nodes()) == len(fetched) == 2
    assert row(product.follow("Go back"))[1:3] == [V1, "2/2"]
    assert row(product.follow("Promote"))[1:3] == [V2, "2/2"]
    for pod in product.pods(TEAM, "app=embed"):
        assert product.hash_files(pod).items() > hash_tree(product.model).items()
    said = product.follow("Go back after a promotion")
    assert {"WeightReached", "Held"} <= set(said.split())
    wait_until(lambda: both <= product.warm_nodes(), seconds=60, what="the first one's labels")
    assert fetched_on(product, both) == fetched
