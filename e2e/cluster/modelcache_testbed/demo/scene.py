"""What the steps of the quick demo share: its cluster, its nodes, and short ways to ask them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from modelcache_testbed.command_line import run_command
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import state_folder
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.local_cluster import LocalCluster
from modelcache_testbed.metrics import read_metrics
from modelcache_testbed.models import build_cache, build_version
from modelcache_testbed.played_volumes import PlayedVolumes
from modelcache_testbed.ports import PortLedger
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import System
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from modelcache_testbed.kube_api import Document

NAME = "demo"
NODES = ("gpu-1", "gpu-2", "gpu-3")
TEAM = "search"
CACHE = "minilm"
V1, V2 = "minilm-v1", "minilm-v2"
BUCKET = "models"
PREFIXES = {V1: "minilm/v1", V2: "minilm/v2"}
_API = "/apis/modelcache.io/v1alpha1"
_OF_TEAM = f"{_API}/namespaces/{TEAM}"
_PODS = f"/api/v1/namespaces/{TEAM}/pods"
_FETCHED = "modelcache_agent_fetch_network_bytes_total"


class Scene:
    """Everything that a run starts, by the names that users give to it."""

    def __init__(self) -> None:
        """Refer to cluster, store and system of the demo; nothing is started yet."""
        self.cluster = LocalCluster.named(NAME)
        self.store = Seaweed.named(NAME)
        self.system = System(self.cluster, state_folder() / "systems" / NAME)
        self.metrics_ports: dict[str, int] = {}

    # --- bringing things up, and asking for things ------------------------------------------

    def add_agent(self, node: str, *, host_capacity: str) -> None:
        """Start an agent with a tier in memory, whose metrics can be read."""
        ledger = PortLedger(state_folder() / "ports.json")
        port = ledger.reserve([node], self.system.folder)[node]
        extra = (f"--metrics-port={port}", f"--host-capacity={host_capacity}")
        self.system.add_agent(node, capacity="2Gi", extra=extra)
        self.metrics_ports[node] = port

    def build_version(self, name: str) -> dict[str, Any]:
        """The ModelVersion of that name."""
        return build_version(
            TEAM,
            name,
            f"s3://{BUCKET}/{PREFIXES[name]}",
            self.store.endpoint,
            model="sentence-transformers/all-MiniLM-L6-v2",
        )

    def build_cache(self, *, tier: str) -> dict[str, Any]:
        """The ModelCache of v1."""
        return build_cache(TEAM, CACHE, V1, tier=tier, copies=2, nodeSelector={"pool": "gpu"})

    def change_cache(self, **spec: Any) -> None:
        """Change the ModelCache's spec, as a user does."""
        self.cluster.api.patch(f"{_OF_TEAM}/modelcaches/{CACHE}", {"spec": spec})

    def add_pods(self, *names: str, labels: Mapping[str, str] | None = None) -> list[Document]:
        """Create pods with the affinity of the ModelCache; return them once they have a node."""
        found = self.cli("affinity", CACHE, "--namespace", TEAM, "--output", "json")
        for name in names:
            pod = build_pod(name, json.loads(found))
            pod["metadata"]["labels"].update(labels or {})
            self.cluster.api.create(_PODS, pod)

        def pods() -> list[Document]:
            return [self.cluster.api.get(f"{_PODS}/{name}") for name in names]

        wait_until(
            lambda: all("nodeName" in pod["spec"] for pod in pods()),
            seconds=30,
            what=f"a node for {', '.join(names)}",
        )
        return pods()

    def remove_pods(self, *names: str) -> None:
        """Delete pods."""
        for name in names:
            self.cluster.api.delete(f"{_PODS}/{name}")

    def volumes(self, node: str) -> PlayedVolumes:
        """The part of the kubelet and the CSI driver on a node."""
        return PlayedVolumes(self.system.store_of(node), self.system.folder / f"kubelet-{node}")

    def cli(self, *arguments: str) -> str:
        """Run `kubectl modelcache`."""
        result = run_command(self.cluster.kubeconfig, *arguments)
        if result.returncode:
            raise TestbedError(f"kubectl modelcache {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    # --- asking ---------------------------------------------------------------------------

    def status(self) -> Document:
        """The ModelCache's status."""
        found: Document = self.cluster.api.get(f"{_OF_TEAM}/modelcaches/{CACHE}").get("status", {})
        return found

    def condition(self, kind: str) -> Document:
        """A condition of the ModelCache; empty while there is none."""
        return find_condition(self.status(), kind)

    def label_key(self, version: str = V1) -> str:
        """The label of nodes that hold a version."""
        found = self.cluster.api.get(f"{_OF_TEAM}/modelversions/{version}")
        return str(found.get("status", {}).get("nodeLabelKey"))

    def labels(self, node: str) -> dict[str, str]:
        """A node's labels."""
        found: dict[str, str] = self.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
        return found

    def warm_nodes(self, version: str = V1) -> set[str]:
        """The nodes whose label says that the version is there."""
        key = self.label_key(version)
        return {name for name in NODES if key in self.labels(name)}

    def cache_nodes(self) -> list[Document]:
        """All CacheNodes."""
        found: list[Document] = self.cluster.api.get(f"{_API}/cachenodes")["items"]
        return found

    def live_nodes(self) -> list[str]:
        """The nodes whose agent is alive."""
        return sorted(
            node["metadata"]["name"]
            for node in self.cache_nodes()
            if find_condition(node.get("status", {}), "Ready").get("status") == "True"
        )

    def await_unfit(self) -> str | None:
        """Wait until each agent has tried to lock memory; why one cannot, or None."""
        wait_until(
            lambda: all("hostSummary" in node.get("status", {}) for node in self.cache_nodes()),
            seconds=30,
            what="what the agents say of their host tier",
        )
        unfit = any(node["status"]["hostSummary"] == "unfit" for node in self.cache_nodes())
        if unfit:
            wait_until(
                lambda: self.find_unfit() is not None,
                seconds=30,
                what="the condition HostTierUnfit",
            )
        return self.find_unfit()

    def find_unfit(self) -> str | None:
        """Why a node cannot lock memory, as its CacheNode's condition says; None if all can."""
        for node in self.cache_nodes():
            found = find_condition(node.get("status", {}), "HostTierUnfit")
            if found.get("status") == "True":
                return str(found["message"])
        return None

    def trees(self, node: str) -> list[Path]:
        """The folders of the versions that a node holds, verified."""
        return sorted((self.system.store_of(node) / "versions").iterdir())

    def has_bytes(self, node: str) -> bool:
        """Whether any blob is left on a node."""
        blobs = self.system.store_of(node) / "blobs"
        return any(path.is_file() for path in blobs.rglob("*"))

    def bytes_read(self) -> tuple[int, int]:
        """Bytes that the store has sent, and that the agents have fetched since they started."""
        fetched = sum(read_metrics(port)[_FETCHED] for port in self.metrics_ports.values())
        return self.store.sent_bytes(), int(fetched)


def build_pod(name: str, node_affinity: dict[str, Any]) -> dict[str, Any]:
    """A pod that wants to be where the model is."""
    return {
        "metadata": {"name": name, "labels": {"app": "embed"}},
        "spec": {
            "affinity": {"nodeAffinity": node_affinity},
            "containers": [{"name": "main", "image": "stand-in"}],
            "terminationGracePeriodSeconds": 0,
        },
    }
