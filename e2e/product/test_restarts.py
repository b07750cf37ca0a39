"""Agents come and go; pods that read do not notice, and nothing is fetched or relabelled."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from modelcache_testbed import wait_until
from modelcache_testbed.product import AGENTS, SYSTEM, TEAM
from modelcache_testbed.programs import kubectl

pytestmark = pytest.mark.nodes

FETCHED = "modelcache_agent_fetch_network_bytes_total"
# Nobody listens before the end: a full pipe would stop the readers.
READ = """
rm -f /tmp/stop
until [ -e /tmp/stop ]; do sha256sum < $MODELCACHE_PATH/vocab.txt || echo FAILED; done | sort -u
"""
LABELS = '{.metadata.name} {.metadata.labels}{"\\n"}'


@contextmanager
def reading(product) -> Iterator[set[str]]:
    """Every pod reads without a pause; the set fills with what they read when the block ends."""
    pods, seen = product.pods(TEAM, "app=embed"), set()
    flags = (str(kubectl()), f"--kubeconfig={product.cluster.kubeconfig}", f"--namespace={TEAM}")
    readers = [
        subprocess.Popen(
            [*flags, "exec", pod["metadata"]["name"], "--container=main", "--", "sh", "-c", READ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for pod in pods
    ]
    try:
        yield seen
    finally:
        for pod in pods:
            product.run(pod, "touch /tmp/stop")
        for reader in readers:
            seen.update(reader.communicate(timeout=60)[0].splitlines())
            assert reader.returncode == 0


@contextmanager
def watching_labels(product, scratch) -> Iterator[set[str]]:
    """The set fills with all labels that any node has had when the block ends."""
    log, seen = scratch / "labels", set()
    flags = (f"--kubeconfig={product.cluster.kubeconfig}", f"--output=jsonpath={LABELS}")
    with log.open("w") as output:
        watch = subprocess.Popen([str(kubectl()), "get", "nodes", "--watch", *flags], stdout=output)
        try:
            wait_until(
                lambda: log.read_text().count("\n") >= len(product.cluster.fleet.names),
                seconds=30,
                what="the first sight of all nodes",
            )
            yield seen
            node = product.cluster.fleet.names[0]
            product.cluster.kubectl("label", "node", node, "e2e/end=now")
            wait_until(
                lambda: "e2e/end" in log.read_text(), seconds=30, what="the end of the watch"
            )
            product.cluster.kubectl("label", "node", node, "e2e/end-")
        finally:
            watch.terminate()
            watch.wait(30)
    seen.update(line for line in log.read_text().splitlines() if "e2e/end" not in line)


def restarts(product):
    """How often each pod's container was started again."""
    return {
        pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"]
        for pod in product.pods(TEAM, "app=embed")
    }


def test_readers_labels_and_bytes_stay_when_an_agent_is_deleted_and_all_are_restarted(
    product, scratch
):
    before = restarts(product)
    old = {pod["metadata"]["name"] for pod in product.pods(SYSTEM, AGENTS)}
    warm = min(product.warm_nodes())
    deleted = next(p for p in product.pods(SYSTEM, AGENTS) if p["spec"]["nodeName"] == warm)
    with watching_labels(product, scratch) as labels, reading(product) as lines:
        name = deleted["metadata"]["name"]
        product.cluster.kubectl("delete", "pod", f"--namespace={SYSTEM}", name, "--timeout=60s")
        product.await_agents()
        product.follow("Restart the agents")
        fetched = product.metric(FETCHED)
    assert old.isdisjoint(fetched)
    assert fetched == dict.fromkeys(fetched, 0.0)
    assert len(lines) == 1
    assert "FAILED" not in lines
    assert len(labels) == len(product.cluster.fleet.names)
    assert restarts(product) == before


def test_a_pod_created_after_the_restart_gets_its_model_and_an_old_one_can_be_deleted(product):
    pod = product.pods(TEAM, "app=embed")[0]["metadata"]["name"]
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", pod, "--timeout=60s")
    product.cluster.kubectl(
        "rollout", "status", f"--namespace={TEAM}", "deployment/embed", "--timeout=60s"
    )
    for fresh in product.pods(TEAM, "app=embed"):
        assert "model.safetensors" in product.run(fresh, "ls $MODELCACHE_PATH")
