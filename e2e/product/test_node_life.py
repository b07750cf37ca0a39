"""A node that held the model is taken away and rebuilt under its name."""

from __future__ import annotations

import pytest

from modelcache_testbed import wait_until
from modelcache_testbed.product import TEAM

pytestmark = pytest.mark.nodes


@pytest.fixture(scope="module")
def victim(product):
    """A node that holds the model and not the store that it came from."""
    (store,) = product.pods("storage")
    return min(product.warm_nodes() - {store["spec"]["nodeName"]})


def summary(product):
    path = f"/apis/modelcache.io/v1alpha1/namespaces/{TEAM}/modelcaches/minilm"
    return product.cluster.api.get(path)["status"]["copiesSummary"]


def test_the_copies_of_a_removed_node_are_made_elsewhere_and_its_record_goes(product, victim):
    product.cluster.fleet.remove(victim)
    wait_until(
        lambda: len(product.warm_nodes()) == 2 and summary(product) == "2/2",
        seconds=120,
        what="two copies without the removed node",
    )
    record = f"/apis/modelcache.io/v1alpha1/cachenodes/{victim}"
    wait_until(
        lambda: product.cluster.api.find(record) is None, seconds=60, what="the end of its record"
    )


def test_the_rebuilt_node_joins_empty_and_takes_pods_with_their_model(product, victim):
    fleet = product.cluster.fleet
    fleet.add(victim)
    product.load_images([victim])
    product.cluster.kubectl("label", "node", victim, "pool=gpu")
    product.await_agents()
    product.cluster.kubectl("wait", f"cachenode/{victim}", "--for=create", "--timeout=60s")
    wait_until(lambda: len(product.pods(TEAM, "app=embed")) == 2, seconds=60, what="two pods again")
    product.cluster.kubectl(
        "rollout", "status", f"--namespace={TEAM}", "deployment/embed", "--timeout=120s"
    )
    assert victim not in product.warm_nodes()
    assert summary(product) == "2/2"
