"""A node that held the model is taken away and rebuilt under its name."""

from __future__ import annotations

import pytest

from modelcache_testbed import wait_until
from modelcache_testbed.bucket import hash_tree
from modelcache_testbed.product import TEAM, build_pod
from modelcache_testbed.product_store import sent_bytes

pytestmark = pytest.mark.nodes

# Listings and questions; the model is 91 MB.
LITTLE_BYTES = 5_000_000


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


def test_the_rebuilt_node_starts_clean_and_takes_pods_with_their_model(product, victim):
    fleet, sent = product.cluster.fleet, sent_bytes(product)
    fleet.add(victim)
    product.load_images([victim])
    product.cluster.kubectl("label", "node", victim, "pool=gpu")
    product.await_agents()
    node = product.cluster.api.get(f"/api/v1/nodes/{victim}")["metadata"]["uid"]
    record = f"/apis/modelcache.io/v1alpha1/cachenodes/{victim}"
    wait_until(
        lambda: owners(product.cluster.api.find(record)) == {node},
        seconds=60,
        what="a record that belongs to the new node",
    )
    product.cluster.kubectl("wait", f"cachenode/{victim}", "--for=condition=Ready", "--timeout=60s")
    where = {"kubernetes.io/hostname": victim}
    pod = build_pod("rebuilt", labels={"modelcache.io/cache": "minilm"}, nodeSelector=where)
    started = product.start_pod(TEAM, pod, seconds=120)
    assert product.hash_files(started) == hash_tree(product.model)
    assert sent_bytes(product) - sent < LITTLE_BYTES, "it came from the other nodes"
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "rebuilt", "--timeout=60s")
    product.cluster.kubectl(
        "rollout", "status", f"--namespace={TEAM}", "deployment/embed", "--timeout=120s"
    )
    assert summary(product) == "2/2"


def owners(found):
    return {
        owner["uid"] for owner in (found or {"metadata": {}})["metadata"].get("ownerReferences", ())
    }
