"""The pod-resources API, its answers written by hand with the numbers of the specification."""

from __future__ import annotations

import pytest

from fakes.kubelet_devices import a_device, a_pod, nested, serving
from fakes.played_kubelet import encode
from modelcache_agent.decide.gpu.handover import Pod
from modelcache_agent.tiers.gpu.pod_resources import PodResources

READER = Pod("models", "reader-0", "uid")


ANSWER = b"".join(
    nested(1, pod)
    for pod in (
        a_pod("other", "reader-0", nested(2, a_device("nvidia.com/gpu", "GPU-other"))),
        a_pod(
            "models",
            "reader-0",
            encode({1: "main"}) + nested(2, a_device("nvidia.com/gpu", "GPU-1", "GPU-2::3")),
            encode({1: "side"}) + nested(2, a_device("example.com/nic", "eth7")),
        ),
        a_pod("models", "reader-1", encode({1: "main"})),
    )
)


@pytest.fixture
def kubelet(tmp_path):
    """A server that speaks bytes; the requests that it got."""
    requests = []

    def answer(request):
        requests.append(request)
        return ANSWER

    with serving(tmp_path / "kubelet.sock", answer):
        yield tmp_path / "kubelet.sock", requests


def test_a_pod_has_the_devices_of_all_its_containers_and_no_others(kubelet):
    socket, requests = kubelet
    resources = PodResources(socket)
    assert resources.devices_of(READER) == {"GPU-1", "GPU-2::3", "eth7"}
    assert resources.devices_of(Pod("models", "reader-1", "uid")) == frozenset()
    assert resources.devices_of(Pod("models", "unknown", "uid")) == frozenset()
    assert requests == [b"", b"", b""]
    resources.close()


def test_a_kubelet_that_does_not_answer_is_told_from_a_pod_without_devices(tmp_path, caplog):
    resources = PodResources(tmp_path / "none.sock")
    assert resources.devices_of(READER) is None
    assert "UNAVAILABLE" in caplog.text
    resources.close()
