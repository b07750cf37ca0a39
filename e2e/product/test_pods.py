"""What a pod gets for one label, and what it can do with it."""

from __future__ import annotations

import pytest

from modelcache_testbed.bucket import hash_tree
from modelcache_testbed.product import TEAM

pytestmark = pytest.mark.nodes

EMBED = "app=embed"


def test_the_tutorial_leads_to_two_verified_copies(product):
    assert " 2/2 " in product.said["Cache it"]
    assert len(product.warm_nodes()) == 2


def test_one_label_gives_a_pod_volume_mount_environment_wait_and_affinity(product):
    for pod in product.pods(TEAM, EMBED):
        spec = pod["spec"]
        main = spec["containers"][0]
        drivers = [v["csi"]["driver"] for v in spec["volumes"] if "csi" in v]
        assert drivers == ["csi.modelcache.io"]
        assert "/mnt/models" in {m["mountPath"] for m in main["volumeMounts"]}
        assert {e["name"] for e in main["env"]} >= {"MODELCACHE_PATH", "HF_HUB_CACHE"}
        assert [c["name"] for c in spec["initContainers"]] == ["modelcache-wait"]
        assert "nodeAffinity" in spec["affinity"]


def test_pods_land_on_the_nodes_that_hold_the_model(product):
    pods = product.pods(TEAM, EMBED)
    assert len(pods) == 2
    assert {pod["spec"]["nodeName"] for pod in pods} <= product.warm_nodes()


def test_every_file_in_the_pod_is_the_buckets(product):
    for pod in product.pods(TEAM, EMBED):
        assert product.hash_files(pod) == hash_tree(product.model)


def test_the_wait_container_says_what_it_waited_for(product):
    for pod in product.pods(TEAM, EMBED):
        where = (f"--namespace={TEAM}", pod["metadata"]["name"], "--container=modelcache-wait")
        assert f"{TEAM}/minilm is ready" in product.cluster.kubectl("logs", *where)


def test_nothing_in_the_pods_volume_can_be_written(product):
    pod = product.pods(TEAM, EMBED)[0]
    script = "touch /mnt/models/x /mnt/models/model/x; rm -f /mnt/models/model/config.json; true"
    product.run(pod, f"({script}) 2>/dev/null")
    assert product.hash_files(pod) == hash_tree(product.model)
