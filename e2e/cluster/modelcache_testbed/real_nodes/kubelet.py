"""The kubelet of a node."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import yaml

from modelcache_testbed.components import Component
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.kube_api import KubeApi
from modelcache_testbed.programs import KUBELET
from modelcache_testbed.real_nodes.layout import CLUSTER_DOMAIN, DNS_ADDRESS, RealNode, living
from modelcache_testbed.real_nodes.namespaces import on_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modelcache_testbed.certificates import KeyPair

_READY_SECONDS = 120


def component(
    node: RealNode, own: Path, administrator: Path, before_start: Callable[[], None]
) -> Component:
    """Return the node's kubelet; it is ready when the API server has it from this very kubelet."""
    argv = (
        str(KUBELET.path),
        f"--config={_configuration_file(node)}",
        f"--kubeconfig={own}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
    )
    kubelet = Component(
        name(node),
        argv,
        lambda: _is_ready(administrator, node),
        ready_seconds=_READY_SECONDS,
        before_start=before_start,
    )
    return on_node(node, kubelet)


def name(node: RealNode) -> str:
    """Return the component's name."""
    return f"kubelet-{node.name}"


def write_settings(node: RealNode, authority: Path, serving: KeyPair) -> None:
    """Write what the kubelet reads."""
    (node.settings / "resolv.conf").write_text("")  # the machine's name servers are out of reach
    document = yaml.safe_dump(_configuration(node, authority, serving), sort_keys=False)
    _configuration_file(node).write_text(document)


def _configuration_file(node: RealNode) -> Path:
    return node.settings / "kubelet.yaml"


def _configuration(node: RealNode, authority: Path, serving: KeyPair) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzPort": 0,
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(node.settings / "resolv.conf"),
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "makeIPTablesUtilChains": False,
        "protectKernelDefaults": True,  # check and never change
        "oomScoreAdj": 0,
        "failSwapOn": False,
        # Disk and memory are shared with everything else on the machine: its fullness is no
        # reason to evict pods or to delete images that cannot be pulled again.
        "evictionHard": {
            "memory.available": "64Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "shutdownGracePeriod": "0s",
    }


def _is_ready(administrator: Path, node: RealNode) -> bool:
    kubelet = living(node.instance_folder, name(node))
    if kubelet is None:
        return False
    try:
        found = KubeApi(administrator).find(f"/api/v1/nodes/{node.name}")
    except TestbedError:
        return False
    conditions = found.get("status", {}).get("conditions", []) if found else []
    return any(
        condition["type"] == "Ready"
        and condition["status"] == "True"
        and _seconds(condition["lastHeartbeatTime"]) >= int(kubelet.started_seconds())
        for condition in conditions
    )


def _seconds(time: str) -> float:
    return dt.datetime.fromisoformat(time).timestamp()
