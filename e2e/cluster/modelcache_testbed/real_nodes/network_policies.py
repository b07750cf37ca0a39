"""A stand-in for the network plug-in that would enforce NetworkPolicies: the machine has none.

Real policies and real pods become rules of the kernel's packet filter, for what passes between
nodes. Only what a pod lets in is enforced, and only the kinds of rules that the chart writes; all
others are refused rather than guessed. Pods that come later are not seen.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.real_nodes.layout import POD_RANGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modelcache_testbed.kube_api import Document
    from modelcache_testbed.local_cluster import LocalCluster

_TABLE = "modelcache_policies"
_HEAD = "type filter hook forward priority 0; policy accept;"


def make_rules(policies: Sequence[Document], pods: Sequence[Document], *, closed: int = 0) -> str:
    """The policies of one namespace over its pods, in nft's language. Pure.

    Raises TestbedError for what a policy says beyond the chart's kinds of rules.
    """
    lines = [f"tcp dport {closed} drop"] if closed else []
    lines.append("ct state established,related accept")
    for policy in policies:
        spec = policy["spec"]
        for address in _select(pods, spec["podSelector"]):
            for rule in spec.get("ingress", ()):
                lines += _allow(address, rule, pods)
            lines.append(f"ip daddr {address} drop")
    chain = "\n    ".join([_HEAD, *lines])
    return f"table ip {_TABLE} {{\n  chain forward {{\n    {chain}\n  }}\n}}\n"


@contextlib.contextmanager
def enforced(cluster: LocalCluster, namespace: str, *, closed: int = 0) -> Iterator[None]:
    """Enforce a namespace's policies for the pods that it has now, until the block ends.

    Nothing passes to the port ``closed``, as if a firewall between the nodes knew better.
    """
    api = cluster.api
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    policies = api.get(path)["items"]
    pods = api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    rules = make_rules(policies, pods, closed=closed)
    anywhere = cluster.fleet.names[0]  # all nodes share one network
    cluster.fleet.run(anywhere, "nft", rules)
    try:
        yield
    finally:
        cluster.fleet.run(anywhere, "nft", f"delete table ip {_TABLE}")


def _allow(address: str, rule: dict[str, Any], pods: Sequence[Document]) -> list[str]:
    ports = [
        port["port"]
        for port in rule["ports"]
        if set(port) == {"port", "protocol"} and port["protocol"] == "TCP"
    ]
    sources = [_sources(peer, pods) for peer in rule["from"]]
    if len(ports) != len(rule["ports"]) or set(rule) != {"from", "ports"}:
        raise TestbedError(f"a rule that the stand-in does not know: {rule}")
    return [
        f"ip daddr {address} ip saddr {{ {', '.join(source)} }} tcp dport {port} accept"
        for source in sources
        for port in ports
        if source
    ]


def _sources(peer: dict[str, Any], pods: Sequence[Document]) -> list[str]:
    if peer == {"namespaceSelector": {}}:
        return [POD_RANGE]
    if set(peer) == {"podSelector"}:
        return _select(pods, peer["podSelector"])
    raise TestbedError(f"a peer that the stand-in does not know: {peer}")


def _select(pods: Sequence[Document], selector: dict[str, Any]) -> list[str]:
    if set(selector) - {"matchLabels"}:
        raise TestbedError(f"a selector that the stand-in does not know: {selector}")
    wanted = selector.get("matchLabels", {}).items()
    return [
        pod["status"]["podIP"]
        for pod in pods
        if wanted <= pod["metadata"].get("labels", {}).items() and "podIP" in pod["status"]
    ]
