"""The whole product on real nodes, as a team sees it that has followed docs/tutorial.md."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelcache_testbed.bucket import minilm_folder
from modelcache_testbed.commands import run_quietly
from modelcache_testbed.console import say
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import state_folder
from modelcache_testbed.images.build import built_archives
from modelcache_testbed.images.seaweed import SEAWEED_IMAGE, seaweed_image
from modelcache_testbed.metrics import parse_metrics
from modelcache_testbed.ports import PortLedger
from modelcache_testbed.programs import helm
from modelcache_testbed.tutorial import TUTORIAL, build_environment, read_sections
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelcache_testbed.kube_api import Document
    from modelcache_testbed.local_cluster import LocalCluster

SYSTEM = "modelcache-system"
TEAM = "search"
LABEL_PREFIX = "cache.modelcache.io/"
AGENTS = "app.kubernetes.io/component=agent"
OPERATORS = "app.kubernetes.io/component=operator"
VALUES = Path(__file__).parents[1] / "values.yaml"
_HASH = "cd $MODELCACHE_PATH && find . -type f -exec sha256sum {} +"


class Product:
    """ModelCache, its store and its users on a cluster of the test bed's own."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        """Refer to it; ``folder`` takes what the tutorial expects on the PATH."""
        self.cluster = cluster
        self.model = minilm_folder()
        self.said: dict[str, str] = {}
        self._sections = {section.title: section for section in read_sections(TUTORIAL.read_text())}
        self._folder = folder

    @property
    def titles(self) -> Sequence[str]:
        """Return the headings of the tutorial that have commands, in their order."""
        return list(self._sections)

    def load_images(self, nodes: Sequence[str] = ()) -> None:
        """Bring our images and the store's into nodes; all of them unless some are named."""
        fleet = self.cluster.fleet
        for archive in built_archives():
            fleet.load_image(archive, nodes)
        lacking = [n for n in nodes or fleet.names if SEAWEED_IMAGE not in fleet.images(n)]
        if lacking:
            with tempfile.TemporaryDirectory() as folder:
                archive = Path(folder) / "seaweed.tar"
                seaweed_image().write(archive)
                fleet.load_image(archive, lacking)

    def follow(self, title: str) -> str:
        """Run the commands of one section as they stand, and keep what they print."""
        started = time.monotonic()
        try:
            self.said[title] = self._sections[title].run(self._environment())
        except TestbedError as error:
            raise TestbedError(f"{title}: {error}\n{self._describe()}") from None
        say(f"tutorial, {title}: {time.monotonic() - started:.1f} s")
        return self.said[title]

    def follow_page(self, page: Path) -> str:
        """Run all commands of another page that continues the tutorial; what they print."""
        sections = read_sections(page.read_text())
        return "".join(section.run(self._environment()) for section in sections)

    def _describe(self) -> str:
        """Return what people would look at first when something does not go on."""
        looks = (
            ("get", "pods,modelcaches,modelversions", "--all-namespaces", "--output=wide"),
            ("get", "nodes,cachenodes", "--show-labels"),
            *(
                (
                    "logs",
                    f"--namespace={SYSTEM}",
                    "--tail=15",
                    "--prefix",
                    "--all-containers",
                    f"-l={part}",
                )
                for part in (OPERATORS, AGENTS)
            ),
        )
        return self._look(looks)

    def _look(self, looks: Sequence[Sequence[str]]) -> str:
        found = []
        for look in looks:
            try:
                found.append(self.cluster.kubectl(*look))
            except TestbedError as error:
                found.append(str(error))
        return "\n".join(found)

    @property
    def store_port(self) -> int:
        """The port of this machine at which the tutorial reaches its store."""
        ledger = PortLedger(state_folder() / "ports.json")
        return ledger.reserve(["store"], self._folder)["store"]

    def _environment(self) -> dict[str, str]:
        return build_environment(
            self.cluster.kubeconfig,
            self._folder,
            MODEL=str(self.model),
            PORT=str(self.store_port),
            VALUES=str(VALUES),
        )

    def helm(self, *arguments: str) -> str:
        """Run helm as administrator."""
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        return run_quietly(str(helm()), *arguments, environment=environment)

    def warm_nodes(self, namespace: str = TEAM, version: str = "minilm-v1") -> set[str]:
        """Return the nodes whose label says that the version is there."""
        path = f"/apis/modelcache.io/v1alpha1/namespaces/{namespace}/modelversions/{version}"
        key = self.cluster.api.get(path).get("status", {}).get("nodeLabelKey")
        return {name for name, labels in self.labels().items() if key in labels}

    def labels(self) -> dict[str, dict[str, str]]:
        """Return our labels of each node."""
        return {
            node["metadata"]["name"]: {
                key: value
                for key, value in node["metadata"]["labels"].items()
                if key.startswith(LABEL_PREFIX)
            }
            for node in self.cluster.api.get("/api/v1/nodes")["items"]
        }

    def pods(self, namespace: str, selector: str = "") -> list[Document]:
        """Return pods that are not being deleted."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        listed: list[Document] = self.cluster.api.get(path, labelSelector=selector)["items"]
        return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]

    def run(self, pod: Document, command: str, container: str = "main") -> str:
        """Run a shell command in a pod."""
        metadata = pod["metadata"]
        where = (
            f"--namespace={metadata['namespace']}",
            metadata["name"],
            f"--container={container}",
        )
        return self.cluster.kubectl("exec", *where, "--", "sh", "-c", command)

    def hash_files(self, pod: Document) -> dict[str, str]:
        """Return the sha256 of each file that the pod sees, by relative path."""
        lines = self.run(pod, _HASH).splitlines()
        return {
            path.removeprefix("./"): digest for digest, path in (line.split() for line in lines)
        }

    def start_pod(self, namespace: str, pod: dict[str, Any], *, seconds: float = 60) -> Document:
        """Create a pod and wait until it is Ready."""
        name = pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.cluster.api.create(path, pod)
        where = f"--namespace={namespace}"
        ready = (f"pod/{name}", "--for=condition=Ready", f"--timeout={seconds:g}s")
        try:
            self.cluster.kubectl("wait", where, *ready)
        except TestbedError as error:
            logs = ("logs", where, name, "--all-containers", "--prefix", "--tail=20")
            looks = (("describe", where, "pod", name), logs)
            raise TestbedError(f"{error}\n{self._look(looks)}") from None
        return self.cluster.api.get(f"{path}/{name}")

    def await_cache(self, namespace: str, name: str, *, seconds: float = 120) -> None:
        """Wait until a ModelCache is Ready."""
        self.cluster.kubectl(
            "wait",
            f"--namespace={namespace}",
            f"modelcache/{name}",
            "--for=condition=Ready",
            f"--timeout={seconds:g}s",
        )

    def metric(self, name: str) -> dict[str, float]:
        """Return a counter of all agents by the name of their pod."""
        found = {}
        for pod in self.pods(SYSTEM, AGENTS):
            agent = pod["metadata"]["name"]
            path = f"/api/v1/namespaces/{SYSTEM}/pods/{agent}:9404/proxy/metrics"
            found[agent] = parse_metrics(self.cluster.kubectl("get", "--raw", path))[name]
        return found

    def await_agents(self, *, seconds: float = 120) -> None:
        """Wait until every node has an agent that is ready."""
        self.cluster.kubectl(
            "rollout",
            "status",
            f"--namespace={SYSTEM}",
            "daemonset/modelcache-agent-default",
            f"--timeout={seconds:g}s",
        )

    def await_warm(self, node: str, *, seconds: float = 120) -> None:
        """Wait until a node holds the tutorial's model."""
        wait_until(
            lambda: node in self.warm_nodes(), seconds=seconds, what=f"the model's label on {node}"
        )


def build_pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod with a shell that ends at once when told to; further fields of its spec by keyword."""
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [build_container()],
            **spec,
        },
    }


def build_container(**fields: Any) -> dict[str, Any]:
    """A container that waits for commands, and ends when its first process is told to."""
    script = "trap 'exit 0' TERM; sleep infinity & wait"
    image = "modelcache.io/testbed/busybox:1"
    return {"name": "main", "image": image, "command": ["sh", "-c", script], **fields}
