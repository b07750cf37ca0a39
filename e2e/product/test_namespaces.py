"""Namespaces with rules of their own, and versions that follow each other, on real mounts."""

from __future__ import annotations

from contextlib import suppress

import pytest

from modelcache_testbed import wait_until
from modelcache_testbed.bucket import hash_tree
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.models import build_cache, build_version
from modelcache_testbed.product import TEAM, build_container, build_pod

pytestmark = pytest.mark.nodes

STRICT = "strict"
CACHE, PLACEMENT = "modelcache.io/cache", "modelcache.io/placement"
ENDPOINT = "http://seaweed.storage:8333"
URI = "s3://models/minilm/v1"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 4711,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def build_keys(namespace):
    """The tutorial's keys."""
    keys = {"AWS_ACCESS_KEY_ID": "tutorial", "AWS_SECRET_ACCESS_KEY": "only-for-this-tutorial"}
    metadata = {"name": "models-s3", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys}


@pytest.fixture(scope="module")
def strict(product):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    product.cluster.create_namespace(STRICT, labels)
    product.cluster.apply(
        [
            build_keys(STRICT),
            build_version(STRICT, "minilm-v1", URI, ENDPOINT),
            build_cache(STRICT, "minilm", "minilm-v1", copies=1),
        ]
    )
    product.await_cache(STRICT, "minilm")
    yield STRICT
    product.cluster.kubectl("delete", "namespace", STRICT, "--timeout=60s")


def test_C47_a_restricted_namespace_admits_pods_with_all_that_is_added(product, strict):
    pod = build_pod(
        "careful",
        labels={CACHE: "minilm"},
        containers=[build_container(securityContext=RESTRICTED)],
    )
    assert product.hash_files(product.start_pod(strict, pod)) == hash_tree(product.model)


def test_C46_any_user_reads_whatever_fsGroup_says(product, strict):
    pod = build_pod(
        "other-user",
        labels={CACHE: "minilm"},
        containers=[build_container(securityContext={**RESTRICTED, "runAsUser": 1000})],
        securityContext={"fsGroup": 2000, "runAsUser": 1000, "runAsGroup": 3000},
    )
    assert product.hash_files(product.start_pod(strict, pod)) == hash_tree(product.model)


def test_C30_a_pod_on_a_cold_node_starts_there_and_its_model_is_brought(product):
    (cold,) = set(product.labels()) - product.warm_nodes()
    pod = build_pod("cold", labels={CACHE: "minilm"}, nodeSelector={"kubernetes.io/hostname": cold})
    started = product.start_pod(TEAM, pod, seconds=120)
    assert product.hash_files(started) == hash_tree(product.model)
    product.await_warm(cold)
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "cold", "--timeout=60s")


def test_C30_a_required_model_that_no_node_will_hold_keeps_no_pod_waiting(product):
    nowhere = build_cache(TEAM, "nowhere", "minilm-v1", copies=1, nodeSelector={"pool": "none"})
    product.cluster.apply([nowhere])
    labels = {CACHE: "nowhere", PLACEMENT: "required"}
    started = product.start_pod(TEAM, build_pod("required", labels=labels), seconds=120)
    assert product.hash_files(started) == hash_tree(product.model)
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "required", "--timeout=60s")
    product.cluster.kubectl("delete", "modelcache", f"--namespace={TEAM}", "nowhere")


def test_C58_a_pod_keeps_its_version_over_a_rollout_and_over_its_own_restart(product):
    product.cluster.apply([build_cache(TEAM, "rolling", "minilm-v1", copies=1)])
    product.await_cache(TEAM, "rolling")
    pod = product.start_pod(TEAM, build_pod("old", labels={CACHE: "rolling"}))
    mount = product.run(pod, "stat -c %d:%i /mnt/models /mnt/models/model")
    second = build_version(
        TEAM, "part-v2", f"{URI}/", ENDPOINT, include=["*.json", "*.safetensors"]
    )
    product.cluster.apply([second, build_cache(TEAM, "rolling", "part-v2", copies=1)])
    product.await_cache(TEAM, "rolling")
    wait_until(
        lambda: bool(product.warm_nodes(version="part-v2")), seconds=60, what="the second version"
    )
    assert product.hash_files(pod) == hash_tree(product.model)
    # The command may end with the container that it ends.
    with suppress(TestbedError):
        product.run(pod, "kill -TERM 1")
    path = f"/api/v1/namespaces/{TEAM}/pods/old"
    wait_until(
        lambda: (
            product.cluster.api.get(path)["status"]["containerStatuses"][0]["restartCount"] == 1
            and product.cluster.api.get(path)["status"]["containerStatuses"][0]["ready"]
        ),
        seconds=60,
        what="the container's restart",
    )
    assert product.hash_files(pod) == hash_tree(product.model)
    assert product.run(pod, "stat -c %d:%i /mnt/models /mnt/models/model") == mount
    fresh = product.start_pod(TEAM, build_pod("new", labels={CACHE: "rolling"}))
    assert set(product.hash_files(fresh)) < set(hash_tree(product.model))
    product.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "old", "new", "--timeout=60s")
    product.cluster.kubectl("delete", "modelcache", f"--namespace={TEAM}", "rolling")
