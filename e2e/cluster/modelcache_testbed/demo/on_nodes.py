"""The whole product on three real nodes: the tutorial's commands, and what holds after each."""

from __future__ import annotations

import shutil

from modelcache_testbed.bucket import hash_tree
from modelcache_testbed.console import answer, say
from modelcache_testbed.demo.steps import check, show, start_step
from modelcache_testbed.folders import state_folder
from modelcache_testbed.local_cluster import LocalCluster
from modelcache_testbed.ports import PortLedger
from modelcache_testbed.product import AGENTS, SYSTEM, TEAM, Product, build_pod
from modelcache_testbed.waiting import wait_until

NAME = "demo-nodes"
_CACHE_LABEL = "modelcache.io/cache"
_FETCHED = "modelcache_agent_fetch_network_bytes_total"
_EMBED = "app=embed"
_COPIES = 2


class NodesDemo:
    """One run. Everything it starts stays up afterwards, until `make demo-down`."""

    def __init__(self) -> None:
        """Refer to the demo's cluster; nothing is started yet."""
        self.cluster = LocalCluster.named(NAME, profile="nodes")
        self._folder = state_folder() / "systems" / NAME

    def run(self) -> None:
        """Show the tutorial, part by part."""
        product = self.bring_up()
        self.install(product)
        self.cache(product)
        self.use(product)
        self.use_on_a_cold_node(product)
        self.restart_agents(product)
        self.farewell()

    def bring_up(self) -> Product:
        """Start three nodes and bring the images into them."""
        start_step("Three nodes (real kubelets and containers), and our images in them.")
        self._folder.mkdir(parents=True, exist_ok=True)
        self.cluster.up()
        product = Product(self.cluster, self._folder)
        product.load_images()
        show(self.cluster.kubectl("get", "nodes"))
        return product

    def install(self, product: Product) -> None:
        """Install the chart, and a store with a model."""
        start_step("helm install: an operator of two replicas, an agent on each node.")
        product.follow("Install")
        show(self.cluster.kubectl("get", "pods,cachenodes", f"--namespace={SYSTEM}"))
        start_step(
            "An S3 server (SeaweedFS) in the cluster, and a real model in it: MiniLM, 91 MB."
        )
        product.follow("A bucket with a model")

    def cache(self, product: Product) -> None:
        """Apply the README's example."""
        start_step("kubectl apply: a ModelVersion (what) and a ModelCache (where: 2 copies).")
        product.follow("Cache it")
        show(self.cluster.kubectl("get", "modelcaches,modelversions", f"--namespace={TEAM}"))
        wait_until(
            lambda: len(product.warm_nodes()) == _COPIES, seconds=30, what="the labels of two nodes"
        )
        warm = product.warm_nodes()
        check(len(warm) == _COPIES, f"two nodes are labelled: {', '.join(sorted(warm))}")

    def use(self, product: Product) -> None:
        """Create a Deployment with one label more than usual."""
        start_step(
            "A Deployment with one label: volume, wait, environment and affinity come with it."
        )
        product.follow("Use it")
        pods = product.pods(TEAM, _EMBED)
        for pod in pods:
            say(f"   {pod['metadata']['name']} -> {pod['spec']['nodeName']}")
        chosen = {pod["spec"]["nodeName"] for pod in pods}
        check(chosen <= product.warm_nodes(), "all of them run where the model is")
        expected = hash_tree(product.model)
        same = all(product.hash_files(pod) == expected for pod in pods)
        check(same, f"in each of them {len(expected)} files are equal to the bucket's")

    def use_on_a_cold_node(self, product: Product) -> None:
        """Force a pod onto the node without the model."""
        start_step(
            "A pod that must run on the node without the model: it waits, and the model comes."
        )
        (cold,) = set(product.labels()) - product.warm_nodes()
        where = {"kubernetes.io/hostname": cold}
        pod = build_pod("cold", labels={_CACHE_LABEL: "minilm"}, nodeSelector=where)
        started = product.start_pod(TEAM, pod, seconds=120)
        log = ("logs", f"--namespace={TEAM}", "cold", "--container=modelcache-wait")
        show(self.cluster.kubectl(*log))
        check(product.hash_files(started) == hash_tree(product.model), f"it is whole on {cold}")
        self.cluster.kubectl("delete", "pod", f"--namespace={TEAM}", "cold", "--timeout=60s")

    def restart_agents(self, product: Product) -> None:
        """Replace all agents while pods read."""
        start_step("All agents are replaced: pods read on, labels stay, nothing is fetched again.")
        before = product.labels()
        readers = {pod["metadata"]["uid"] for pod in product.pods(TEAM, _EMBED)}
        old = {pod["metadata"]["name"] for pod in product.pods(SYSTEM, AGENTS)}
        product.follow("Restart the agents")
        wait_until(
            lambda: old.isdisjoint(pod["metadata"]["name"] for pod in product.pods(SYSTEM, AGENTS)),
            seconds=60,
            what="the end of the old agents",
        )
        check(sum(product.metric(_FETCHED).values()) == 0, "the new agents have fetched 0 bytes")
        check(product.labels() == before, "labels are as they were")
        now = {pod["metadata"]["uid"] for pod in product.pods(TEAM, _EMBED)}
        check(now == readers, "the pods are the same")

    def farewell(self) -> None:
        """Say how to go on, and end with what kubectl shows."""
        say(f"\nLook around with: export KUBECONFIG={self.cluster.kubeconfig}")
        say("End everything with: make demo-down\n")
        say("$ kubectl get modelcaches --all-namespaces")
        answer(self.cluster.kubectl("get", "modelcaches", "--all-namespaces").rstrip())

    def down(self) -> None:
        """End everything that any run of this demo started and remove its files."""
        self.cluster.down()
        PortLedger(state_folder() / "ports.json").release(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def logs(self) -> str:
        """Say where to look after a failure."""
        return f"logs are under {self.cluster.folder}"
