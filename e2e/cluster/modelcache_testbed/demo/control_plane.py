"""The quick demo: the main job on a real model, a real S3 server and a real control plane."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from modelcache_testbed.bucket import Bucket, hash_tree, minilm_folder
from modelcache_testbed.console import answer, say
from modelcache_testbed.demo.steps import check, start_step
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import state_folder
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.local_cluster import LocalCluster
from modelcache_testbed.models import (
    build_cache,
    build_namespace,
    build_secret,
    build_version,
)
from modelcache_testbed.seaweed import Seaweed
from modelcache_testbed.system import System
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from modelcache_testbed.kube_api import Document

NAME = "demo"
NODES = ("gpu-1", "gpu-2", "gpu-3")
TEAM = "search"
_CACHES = f"/apis/modelcache.io/v1alpha1/namespaces/{TEAM}/modelcaches"
_VERSIONS = f"/apis/modelcache.io/v1alpha1/namespaces/{TEAM}/modelversions"
_PODS = f"/api/v1/namespaces/{TEAM}/pods"
_PREFIX = "minilm/v1"
_BUCKET = "models"
_POD_COUNT = 4


class ControlPlaneDemo:
    """One run. Everything it starts stays up afterwards, until `make demo-down`."""

    def __init__(self) -> None:
        """Refer to the demo's cluster, store and system; nothing is started yet."""
        self.cluster = LocalCluster.named(NAME)
        self.store = Seaweed.named(NAME)
        self.system = System(self.cluster, state_folder() / "systems" / NAME)
        self.expected: dict[str, str] = {}

    def run(self) -> None:
        """Show the main job, step by step."""
        self.bring_up()
        self.fill_bucket()
        self.apply_model()
        self.await_ready()
        self.show_objects()
        self.schedule_pods()
        self.verify_bytes()
        self.restart_without_bucket()
        self.delete_cache()
        self.apply_model("Once more, so that there is something to look at.")
        self.await_ready()
        self.farewell()

    def bring_up(self) -> None:
        """Start control plane, store, operator and agents."""
        start_step(
            "A control plane (real), an S3 server (real), three nodes (played, with real agents)."
        )
        self.cluster.up(node_names=NODES)
        self.store.up()
        self.system.install()
        for node in NODES:
            labels = {"metadata": {"labels": {"pool": "gpu"}}}
            self.cluster.api.patch(f"/api/v1/nodes/{node}", labels)
        self.system.add_operator()
        for node in NODES:
            self.system.add_agent(node, capacity="2Gi")
        wait_until(
            lambda: len(self._live_nodes()) == len(NODES),
            seconds=60,
            what="three CacheNodes that are Ready",
        )
        say(f"   agents on {', '.join(self._live_nodes())} are alive")

    def fill_bucket(self) -> None:
        """Put MiniLM into the bucket."""
        start_step("A real model into a real bucket: all-MiniLM-L6-v2, 91 MB and its small files.")
        bucket = Bucket(self.store, _BUCKET)
        self.expected = bucket.put_folder(minilm_folder(), _PREFIX)
        say(f"   {len(self.expected)} files under s3://{_BUCKET}/{_PREFIX}")

    def apply_model(
        self, text: str = "kubectl apply: a ModelVersion (what) and a ModelCache (where: 2 copies)."
    ) -> None:
        """Apply Secret, ModelVersion and ModelCache."""
        start_step(text)
        documents = build_documents(self.store)
        self.cluster.apply(documents[:1])
        wait_until(
            lambda: (
                self.cluster.api.find(f"/api/v1/namespaces/{TEAM}/serviceaccounts/default")
                is not None
            ),
            seconds=30,
            what=f"a service account in namespace {TEAM}",
        )
        self.cluster.apply(documents[1:])

    def await_ready(self) -> None:
        """Tell the progress until the ModelCache is Ready."""
        told = [""]

        def is_ready() -> bool:
            status = self.cluster.api.get(f"{_CACHES}/minilm").get("status", {})
            ready = find_condition(status, "Ready")
            line = (
                f"   {status.get('copiesSummary', '0/2'):>5} copies  "
                f"{status.get('progress', '0%'):>4}  {ready.get('reason', 'Waiting')}"
            )
            if line != told[0]:
                say(line)
                told[0] = line
            return ready.get("status") == "True" and status.get("copiesSummary") == "2/2"

        started = time.monotonic()
        wait_until(is_ready, seconds=120, what="two verified copies")
        say(f"   two verified copies after {time.monotonic() - started:.1f} s")

    def show_objects(self) -> None:
        """Print what kubectl shows."""
        start_step(
            "What kubectl shows, and the labels that mean 'these bytes are verified here now'."
        )
        kinds = "modelcaches,modelversions,cachenodes"
        say(self.cluster.kubectl("get", kinds, "--namespace", TEAM).rstrip())
        key = self._label_key()
        say(self.cluster.kubectl("get", "nodes", f"--label-columns={key}").rstrip())

    def schedule_pods(self) -> None:
        """Create pods with the affinity and see where the real scheduler puts them."""
        start_step(
            "Pods with `kubectl modelcache affinity minilm`: the real scheduler takes warm nodes."
        )
        affinity = self._cli("affinity", "minilm", "--namespace", TEAM, "--output", "json")
        for number in range(_POD_COUNT):
            self.cluster.api.create(_PODS, build_pod(f"embed-{number}", json.loads(affinity)))
        wait_until(
            lambda: all("nodeName" in pod["spec"] for pod in self._pods()),
            seconds=30,
            what="four scheduled pods",
        )
        chosen = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self._pods()}
        for name, node in sorted(chosen.items()):
            say(f"   {name} -> {node}")
        warm = self._warm_nodes()
        check(set(chosen.values()) <= warm, f"all pods on warm nodes ({', '.join(sorted(warm))})")
        for name in chosen:
            self.cluster.api.delete(f"{_PODS}/{name}")

    def verify_bytes(self) -> None:
        """Compare both copies with the bucket."""
        start_step("The bytes on both nodes, hashed and compared with what lies in the bucket.")
        for node in sorted(self._warm_nodes()):
            trees = list((self.system.store_of(node) / "versions").iterdir())
            check(len(trees) == 1, f"{node} holds one version")
            check(hash_tree(trees[0]) == self.expected, f"{node}: {len(self.expected)} files equal")

    def restart_without_bucket(self) -> None:
        """Kill an agent while the bucket is off, and see that nothing is fetched or changed."""
        start_step(
            "An agent is killed and restarted with the bucket switched off: nothing is fetched."
        )
        node = min(self._warm_nodes())
        before = self._node(node)["metadata"]["labels"]
        self.store.stop()
        agent = self.system.agents[node]
        agent.kill()
        mark = agent.log_file.stat().st_size
        agent.start()
        wait_until(
            lambda: "labels=1" in agent.log_file.read_bytes()[mark:].decode(errors="replace"),
            seconds=30,
            what=f"the agent of {node} taking its store back",
        )
        check(self._node(node)["metadata"]["labels"] == before, "labels are as they were")
        ready = find_condition(self.cluster.api.get(f"{_CACHES}/minilm")["status"], "Ready")
        check(ready["status"] == "True", "the ModelCache stays Ready")
        self.store.start()

    def delete_cache(self) -> None:
        """Delete the ModelCache and watch labels go before bytes."""
        start_step("kubectl delete modelcache: labels go first, then bytes.")
        warm = self._warm_nodes()
        self.cluster.kubectl("delete", "modelcache", "minilm", "--namespace", TEAM)

        def all_gone() -> bool:
            for node in warm:
                # Bytes are looked at before the label: bytes gone and label there is the fault.
                has_bytes = self._has_bytes(node)
                has_label = self._label_key() in self._node(node)["metadata"]["labels"]
                if has_label and not has_bytes:
                    raise TestbedError(f"{node} lost its bytes before its label")
            return not any(self._has_bytes(node) for node in warm)

        wait_until(all_gone, seconds=60, what="labels and bytes gone")
        say(f"   no label and no byte left on {', '.join(sorted(warm))}")

    def farewell(self) -> None:
        """Say how to go on, and end with what kubectl shows."""
        say(f"\nLook around with: export KUBECONFIG={self.cluster.kubeconfig}")
        say("End everything with: make demo-down\n")
        say("$ kubectl get modelcaches --all-namespaces")
        answer(self.cluster.kubectl("get", "modelcaches", "--all-namespaces").rstrip())

    def down(self) -> None:
        """End everything that any run of the demo started and remove its files."""
        self.system.remove()
        self.store.down()
        self.cluster.down()

    @property
    def logs(self) -> str:
        """Say where to look after a failure."""
        return f"logs are under {self.system.folder}"

    def _cli(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "modelcache_cli", *arguments]
        environment = os.environ | {"KUBECONFIG": str(self.cluster.kubeconfig)}
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise TestbedError(f"kubectl modelcache {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def _label_key(self) -> str:
        return str(self.cluster.api.get(f"{_VERSIONS}/minilm-v1")["status"]["nodeLabelKey"])

    def _node(self, name: str) -> Document:
        return self.cluster.api.get(f"/api/v1/nodes/{name}")

    def _warm_nodes(self) -> set[str]:
        key = self._label_key()
        return {name for name in NODES if key in self._node(name)["metadata"]["labels"]}

    def _has_bytes(self, node: str) -> bool:
        blobs = self.system.store_of(node) / "blobs"
        return any(path.is_file() for path in blobs.rglob("*"))

    def _live_nodes(self) -> list[str]:
        found = self.cluster.api.get("/apis/modelcache.io/v1alpha1/cachenodes")["items"]
        return sorted(
            node["metadata"]["name"]
            for node in found
            if find_condition(node.get("status", {}), "Ready").get("status") == "True"
        )

    def _pods(self) -> list[Document]:
        pods: list[Document] = self.cluster.api.get(_PODS)["items"]
        return pods


def build_documents(store: Seaweed) -> list[dict[str, Any]]:
    """Namespace, Secret, ModelVersion and ModelCache of the demo."""
    return [
        build_namespace(TEAM),
        build_secret(TEAM, store),
        build_version(
            TEAM,
            "minilm-v1",
            f"s3://{_BUCKET}/{_PREFIX}",
            store.endpoint,
            model="sentence-transformers/all-MiniLM-L6-v2",
        ),
        build_cache(TEAM, "minilm", "minilm-v1", copies=2, nodeSelector={"pool": "gpu"}),
    ]


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
