"""A web server on each node, to see pods, their network, their disks and their logs at work."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any, Self

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.images.busybox import BUSYBOX_IMAGE
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from modelcache_testbed.cluster import Cluster

# On a cluster of one's own choosing, any image with a shell, httpd, wget and df will do.
SHELL_IMAGE = os.environ.get("SHELL_IMAGE_UNDER_TEST", BUSYBOX_IMAGE)
STORE = "/var/lib/modelcache"
ECHO = "echo $NODE > /tmp/index.html && exec httpd -f -p 8080 -h /tmp"


def build_web(namespace: str) -> list[dict[str, Any]]:
    """One web server per node that answers with its node's name, and their Service."""
    labels = {"app": "web"}
    node_name = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": "web",
        "image": SHELL_IMAGE,
        "command": ["sh", "-c", f"echo started; {ECHO}"],
        "env": [node_name],
        "volumeMounts": [{"name": "store", "mountPath": "/store"}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    volume = {"name": "store", "hostPath": {"path": STORE, "type": "DirectoryOrCreate"}}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container],
            "volumes": [volume],
            "terminationGracePeriodSeconds": 0,
        },
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": pod},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    ]


class WebServers:
    """The web servers of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        """Refer to them; nothing is started yet."""
        self.cluster = cluster
        self.namespace = namespace

    @classmethod
    def start_on(cls, cluster: Cluster) -> Self:
        """Start them in a namespace of their own."""
        namespace = f"web-{secrets.token_hex(3)}"
        cluster.create_namespace(namespace)
        web = cls(cluster, namespace)
        web.start()
        # The proxy learns of a Service in its own time.
        wait_until(web.is_reachable, seconds=60, what=f"the Service in {namespace}")
        return web

    def is_reachable(self) -> bool:
        """Say whether the Service answers in a pod of each node."""
        try:
            return all(self.ask(node, "web") for node in self.pods())
        except TestbedError:
            return False

    def stop(self) -> None:
        """Delete the files web-* on the nodes' disks, and the namespace."""
        nodes = self.cluster.api.get("/api/v1/nodes")["items"]
        there = {node["metadata"]["name"] for node in nodes}
        # Pods of a node that is gone are listed for a while.
        for node in there.intersection(self.pods()):
            self.run(node, "rm -f /store/web-*")
        self.cluster.delete_namespace(self.namespace)

    def start(self) -> None:
        """Start one on each node and wait until all are ready."""
        self.cluster.apply(build_web(self.namespace))
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until the rollout is complete and each node's pod is Ready."""
        self.cluster.kubectl(
            "rollout", "status", "daemonset/web", f"--namespace={self.namespace}", "--timeout=120s"
        )

    def pods(self) -> dict[str, str]:
        """The running pods' names by node."""
        listed = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {
            pod["spec"].get("nodeName", ""): pod["metadata"]["name"]
            for pod in listed
            if "deletionTimestamp" not in pod["metadata"]
        }

    def run(self, node: str, command: str) -> str:
        """Run a shell command in the pod of a node."""
        pod = self.pods()[node]
        flags = (f"--namespace={self.namespace}", pod, "--", "sh", "-c", command)
        return self.cluster.kubectl("exec", *flags)

    def ask(self, node: str, host: str) -> str:
        """Fetch the page of a server from inside the pod of a node."""
        return self.run(node, f"timeout 5 wget -q -O - http://{host}").strip()
