"""A cold start of all nodes: one reads the store, and the others read from each other."""

from __future__ import annotations

import pytest

from modelcache_testbed.models import build_cache, build_version, make_model
from modelcache_testbed.product import AGENTS, SYSTEM, TEAM, build_pod
from modelcache_testbed.product_store import ENDPOINT, reached_bucket, sent_bytes
from modelcache_testbed.real_nodes.network_policies import enforced

pytestmark = pytest.mark.nodes

SIZE_BYTES = 40_000_000
FROM_PEERS = "modelcache_agent_fetch_peer_bytes_total"
SENT = "modelcache_agent_peer_sent_bytes_total"
PORT, METRICS_PORT = 9405, 9404


@pytest.fixture(scope="module")
def policies(product):
    with enforced(product.cluster, SYSTEM):
        yield product


def total(product, metric):
    return sum(product.metric(metric).values())


def test_three_cold_nodes_cost_the_store_little_more_than_one_copy_through_the_policies(policies):
    product, files = policies, make_model(SIZE_BYTES, seed=70)
    weights = len(files["model.safetensors"])
    with reached_bucket(product, "models") as bucket:
        for path, body in files.items():
            bucket.put(f"cold/v1/{path}", body)
    sent, received = sent_bytes(product), total(product, FROM_PEERS)
    product.cluster.apply([build_version(TEAM, "cold-v1", "s3://models/cold/v1", ENDPOINT)])
    product.cluster.apply([build_cache(TEAM, "cold", "cold-v1", copies=3)])
    where = (f"--namespace={TEAM}", "modelcache/cold", "--timeout=120s")
    product.cluster.kubectl("wait", *where, "--for=jsonpath={.status.copiesSummary}=3/3")
    assert weights < sent_bytes(product) - sent < 1.3 * weights
    from_peers = total(product, FROM_PEERS) - received
    assert 2 * weights <= from_peers < 2.6 * weights
    assert total(product, SENT) >= from_peers
    product.cluster.kubectl("delete", *where[:2])


def test_a_stranger_reaches_no_agent_s_door_for_others(policies):
    """That the same pod reaches the metrics shows that it is the policy that keeps it out."""
    product = policies
    agent = product.pods(SYSTEM, AGENTS)[0]
    elsewhere = next(n for n in product.cluster.fleet.names if n != agent["spec"]["nodeName"])
    where = {"kubernetes.io/hostname": elsewhere}
    stranger = product.start_pod(TEAM, build_pod("stranger", nodeSelector=where))

    def reaches(port):
        knock = f"nc -w 2 {agent['status']['podIP']} {port} </dev/null && echo yes || echo no"
        return product.run(stranger, knock).strip() == "yes"

    assert reaches(METRICS_PORT)
    assert not reaches(PORT)
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "stranger", "--timeout=60s")
