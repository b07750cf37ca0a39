"""Whoever asks for another namespace's model gets nothing of it."""

from __future__ import annotations

import pytest

from modelcache_testbed import wait_until
from modelcache_testbed.product import TEAM, build_container, build_pod

pytestmark = pytest.mark.nodes

STRANGERS = "strangers"
CACHE, NAMESPACE = "modelcache.io/cache", "modelcache.io/namespace"
UNKNOWN = f"has not been told of a ModelCache {STRANGERS}/minilm"
KUBELETS_WORD = "csi.storage.k8s.io/pod.namespace"


@pytest.fixture(scope="module")
def strangers(product):
    product.cluster.create_namespace(STRANGERS)
    yield STRANGERS
    product.cluster.kubectl("delete", "namespace", STRANGERS, "--timeout=60s")


def build_forger(name, attributes):
    """A pod that writes its own volume, as anybody may."""
    volume = {"driver": "csi.modelcache.io", "readOnly": True, "volumeAttributes": attributes}
    mounts = [{"name": "stolen", "mountPath": "/mnt/models", "readOnly": True}]
    return build_pod(
        name,
        containers=[build_container(volumeMounts=mounts)],
        volumes=[{"name": "stolen", "csi": volume}],
    )


def told(product, pod, word):
    """Wait until the pod's volume says a word, and return all that is in the volume.

    Its socket is left out: it comes with the volume, and answers of this pod's namespace alone.
    """
    wait_until(
        lambda: word in product.run(pod, "cat /mnt/models/status.json"),
        seconds=60,
        what=f"{word} in the volume of {pod['metadata']['name']}",
    )
    return product.run(pod, "find /mnt/models -mindepth 1 ! -name agent.sock").split()


def reasons(product, pod):
    """Of the Events about a pod."""
    path = f"/apis/events.k8s.io/v1/namespaces/{STRANGERS}/events"
    listed = product.cluster.api.get(path)["items"]
    return {event["reason"] for event in listed if event["regarding"]["name"] == pod}


def test_a_pod_of_another_namespace_is_told_that_it_has_no_such_cache(product, strangers):
    pod = build_pod("labelled", labels={CACHE: "minilm"})
    pod["metadata"]["annotations"] = {"modelcache.io/wait": "false"}
    started = product.start_pod(strangers, pod)
    assert told(product, started, UNKNOWN) == ["/mnt/models/status.json"]
    wait_until(
        lambda: "ModelCacheNotFound" in reasons(product, "labelled"),
        seconds=60,
        what="an Event about the pod",
    )


def test_the_wait_container_holds_such_a_pod_back_and_says_why(product, strangers):
    path = f"/api/v1/namespaces/{strangers}/pods"
    product.cluster.api.create(path, build_pod("held", labels={CACHE: "minilm"}))
    where = (f"--namespace={strangers}", "held", "--container=modelcache-wait")

    def says_why():
        pod = product.cluster.api.get(f"{path}/held")
        states = pod["status"].get("initContainerStatuses", [])
        if not any("running" in status["state"] for status in states):
            return False
        return UNKNOWN in product.cluster.kubectl("logs", *where)

    wait_until(says_why, seconds=60, what="the reason in the wait container's log")
    assert product.cluster.api.get(f"{path}/held")["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("name", "claim", "word"),
    [
        pytest.param("forger", {NAMESPACE: TEAM}, "VolumeRefused", id="our attribute"),
        pytest.param("liar", {KUBELETS_WORD: TEAM}, UNKNOWN, id="the kubelet's word"),
    ],
)
def test_a_forged_attribute_shows_nothing(product, strangers, name, claim, word):
    started = product.start_pod(strangers, build_forger(name, {CACHE: "minilm", **claim}))
    assert told(product, started, word) == ["/mnt/models/status.json"]
