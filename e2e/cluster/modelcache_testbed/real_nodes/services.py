"""What makes Services work: kube-proxy and the cluster's name server, once for all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from modelcache_testbed.components import Component
from modelcache_testbed.ports import LOOPBACK
from modelcache_testbed.probes import answers_http
from modelcache_testbed.programs import COREDNS, KUBE_PROXY
from modelcache_testbed.real_nodes.layout import (
    CLUSTER_DOMAIN,
    DNS_ADDRESS,
    GATEWAY,
    POD_RANGE,
)
from modelcache_testbed.real_nodes.namespaces import in_network

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PROXY, DNS = "kube-proxy", "coredns"
DNS_USER = "system:coredns"
_DNS_PORT = 53
_SETTINGS = "services"

# Loading is left to the readiness probe: a wrong answer while it lasts would be kept by clients.
_COREFILE = """\
.:{port} {{
  bind {address}
  errors
  ready {loopback}:{ready_port}
  kubernetes {domain} in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 5
  }}
}}
"""


def components(instance_folder: Path, ports: Mapping[str, int]) -> list[Component]:
    """Return both; each answers on a port of the loopback when it is ready."""
    folder = instance_folder / _SETTINGS
    proxy = (str(KUBE_PROXY.path), f"--config={folder / 'kube-proxy.yaml'}")
    dns = (str(COREDNS.path), f"-conf={folder / 'Corefile'}")
    return [
        in_network(instance_folder, Component(name, argv, _probe(ports[name], path)))
        for name, argv, path in ((PROXY, proxy, "livez"), (DNS, dns, "ready"))
    ]


def write_settings(
    instance_folder: Path,
    ports: Mapping[str, int],
    kubeconfigs: Mapping[str, Path],
    any_node: str,
) -> None:
    """Write what both read."""
    folder = instance_folder / _SETTINGS
    folder.mkdir(exist_ok=True)
    proxy = _proxy_configuration(ports[PROXY], kubeconfigs[PROXY], any_node)
    (folder / "kube-proxy.yaml").write_text(yaml.safe_dump(proxy, sort_keys=False))
    corefile = _COREFILE.format(
        port=_DNS_PORT,
        address=GATEWAY,
        loopback=LOOPBACK,
        ready_port=ports[DNS],
        domain=CLUSTER_DOMAIN,
        kubeconfig=kubeconfigs[DNS],
    )
    (folder / "Corefile").write_text(corefile)


def build_dns_objects() -> list[dict[str, Any]]:
    """Build the name server's Service, which leads out of the cluster, and its rights."""
    return [_build_service(), _build_slice(), *_build_rights()]


def _probe(port: int, path: str) -> Callable[[], bool]:
    return lambda: answers_http(f"http://{LOOPBACK}:{port}/{path}")


def _proxy_configuration(health_port: int, kubeconfig: Path, any_node: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        # It serves all nodes and yet waits half a minute for one of its own name.
        "hostnameOverride": any_node,
        "clusterCIDR": POD_RANGE,
        "bindAddress": GATEWAY,
        "healthzBindAddress": f"{LOOPBACK}:{health_port}",
        "metricsBindAddress": "",
        # Pods of one node share a bridge and would answer each other past the translation.
        "nftables": {"masqueradeAll": True},
        "oomScoreAdj": 0,
        # The size of the table belongs to the machine.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def _build_service() -> dict[str, Any]:
    ports = [
        {"name": f"dns-{protocol.lower()}", "port": _DNS_PORT, "protocol": protocol}
        for protocol in ("UDP", "TCP")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
    }


def _build_slice() -> dict[str, Any]:
    ports = [
        {"name": f"dns-{protocol.lower()}", "port": _DNS_PORT, "protocol": protocol}
        for protocol in ("UDP", "TCP")
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [GATEWAY], "conditions": {"ready": True}}],
        "ports": ports,
    }


def _build_rights() -> list[dict[str, Any]]:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": DNS_USER},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["services", "pods", "namespaces"],
                "verbs": ["list", "watch"],
            },
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["list", "watch"],
            },
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": DNS_USER},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": DNS_USER,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": DNS_USER}],
    }
    return [role, binding]
