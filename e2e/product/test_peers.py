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


def total(product, metric):
    return sum(product.metric(metric).values())


def start_cold(product, name, seed):
    """Copies of a new model that the store has sent, and that agents got from each other."""
    files = make_model(SIZE_BYTES, seed=seed)
    weights = len(files["model.safetensors"])
    with reached_bucket(product, "models") as bucket:
        for path, body in files.items():
            bucket.put(f"{name}/{path}", body)
    sent, received = sent_bytes(product), total(product, FROM_PEERS)
    product.cluster.apply([build_version(TEAM, name, f"s3://models/{name}", ENDPOINT)])
    product.cluster.apply([build_cache(TEAM, name, name, copies=3)])
    where = (f"--namespace={TEAM}", f"modelcache/{name}")
    everywhere = "--for=jsonpath={.status.copiesSummary}=3/3"
    product.cluster.kubectl("wait", *where, everywhere, "--timeout=120s")
    sent, received = sent_bytes(product) - sent, total(product, FROM_PEERS) - received
    product.cluster.kubectl("delete", *where)
    return sent / weights, received / weights


def test_three_cold_nodes_cost_the_store_little_more_than_one_copy_through_the_policies(product):
    before = total(product, SENT)
    with enforced(product.cluster, SYSTEM):
        from_store, from_each_other = start_cold(product, "cold-open", 70)
    assert 1 < from_store < 1.3
    assert 2 <= from_each_other < 2.6
    assert total(product, SENT) - before >= 2 * 0.99 * SIZE_BYTES


def test_where_the_port_between_agents_is_closed_each_node_reads_for_itself(product):
    with enforced(product.cluster, SYSTEM, closed=PORT):
        from_store, from_each_other = start_cold(product, "cold-closed", 71)
    assert from_store > 3
    assert from_each_other == 0


def test_a_stranger_reaches_no_agent_s_door_for_others(product):
    """That the same pod reaches the metrics shows that it is the policy that keeps it out."""
    agent = product.pods(SYSTEM, AGENTS)[0]
    elsewhere = next(n for n in product.cluster.fleet.names if n != agent["spec"]["nodeName"])
    where = {"kubernetes.io/hostname": elsewhere}
    stranger = product.start_pod(TEAM, build_pod("stranger", nodeSelector=where))

    def reaches(port):
        knock = f"nc -w 2 {agent['status']['podIP']} {port} </dev/null && echo yes || echo no"
        return product.run(stranger, knock).strip() == "yes"

    with enforced(product.cluster, SYSTEM):
        assert reaches(METRICS_PORT)
        assert not reaches(PORT)
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "stranger", "--timeout=60s")
