"""What `gpu.capacity` of a profile asks of the agents' pods."""

from __future__ import annotations

import pytest

from fakes.helm import pick, pod_of, render
from modelcache_agent.config import parse_config

SOCKETS = "/var/lib/kubelet/pod-resources"


def agent_pod(gpu, **values):
    profile = {"name": "p", "nodeSelector": {}, "disk": {"path": "/d"}}
    profile |= {"gpu": gpu} if gpu is not None else {}
    manifests = render({"agent": {"profiles": [profile]}} | values)
    return pod_of(pick(manifests, "DaemonSet", "modelcache-agent-p"))


def container(pod):
    return next(item for item in pod["containers"] if item["name"] == "agent")


def config_of(pod):
    given = [
        argument.replace("$(NODE_NAME)", "n1").replace("$(POD_IP)", "10.1.2.3")
        for argument in container(pod)["args"]
    ]
    return parse_config(given, {})


@pytest.mark.parametrize(
    "gpu", [None, {"capacity": "0"}, {"capacity": "0Gi", "device": "emulated"}]
)
def test_without_a_capacity_nothing_of_cards_is_asked_for(gpu):
    pod = agent_pod(gpu)
    assert config_of(pod).gpu_capacity == 0
    assert not [name for name in ("pod-resources", "NVIDIA") if name in str(pod)]
    assert pod == agent_pod(None)


def test_a_card_comes_with_the_drivers_runtime_and_the_kubelets_word_and_no_other_right():
    pod = agent_pod(
        {"capacity": "1.5Gi", "runtimeClassName": "nvidia"}, csi={"kubeletDir": "/srv/kubelet"}
    )
    config = config_of(pod)
    assert (config.gpu_capacity, config.gpu_device) == (3 << 29, "cuda-vmm")
    assert pod["runtimeClassName"] == "nvidia"
    mounts = {mount["name"]: mount for mount in container(pod)["volumeMounts"]}
    assert mounts["pod-resources"] == {
        "name": "pod-resources", "mountPath": SOCKETS, "readOnly": True
    }  # fmt: skip
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["pod-resources"]["hostPath"]["path"] == "/srv/kubelet/pod-resources"
    variables = {item["name"]: item.get("value") for item in container(pod)["env"]}
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert container(pod)["securityContext"] == container(agent_pod(None))["securityContext"]
    assert "nvidia.com/gpu" not in str(container(pod)["resources"]), "pods get the cards"


def test_an_emulated_card_needs_nothing_of_the_node():
    pod = agent_pod({"capacity": "1Gi", "device": "emulated", "runtimeClassName": "nvidia"})
    config = config_of(pod)
    assert (config.gpu_capacity, config.gpu_device) == (1 << 30, "emulated")
    assert "runtimeClassName" not in pod
    assert not [name for name in ("pod-resources", "NVIDIA") if name in str(pod)]
