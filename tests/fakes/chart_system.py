"""ModelCache on the test bed as the chart installs it: its accounts, its rights, its guards."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from fakes.helm import NAMESPACE, Release
from modelcache_testbed.cluster import Cluster
from modelcache_testbed.errors import ApiError
from modelcache_testbed.system import System

_DEFINITIONS = ("modelversions", "modelcaches", "modelcachequotas", "cachenodes")
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class ChartSystem(System):
    """As `System`; the pods of Deployment and DaemonSets exist, and processes play them."""

    def __init__(
        self, cluster: Cluster, folder: Path, values: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(cluster, folder)
        self.release = Release(cluster.kubeconfig)
        self._values = values

    def install(self) -> None:
        self.release.install(self._values)
        self.cluster.kubectl(
            *("wait", "--for=condition=Established", "--timeout=30s"),
            *(f"crd/{name}.modelcache.io" for name in _DEFINITIONS),
        )


class _Player:
    """Does one thing again and again beside a test. Use as a context."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            for pod in self._cluster.api.get(_PODS)["items"]:
                self.play(pod)

    def play(self, pod: dict[str, Any]) -> None:
        raise NotImplementedError


class PodReaper(_Player):
    """Plays the kubelet that ends pods that are told to end."""

    def play(self, pod: dict[str, Any]) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            path = f"{_PODS}/{pod['metadata']['name']}"
            self._cluster.api.delete(path, {"gracePeriodSeconds": 0})


class CleanUpPlayer(_Player):
    """Plays the kubelet for the Job that `helm uninstall` waits for."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster)
        self._folder = folder
        self.exit_codes: list[int] = []
        self.output = ""

    def play(self, pod: dict[str, Any]) -> None:
        name, labels = pod["metadata"]["name"], pod["metadata"].get("labels", {})
        is_ours = labels.get("app.kubernetes.io/component") == "cleanup"
        if not is_ours or pod["status"].get("phase") != "Pending":
            return
        credentials = self._cluster.service_account_kubeconfig(
            NAMESPACE, "modelcache-cleanup", self._folder
        )
        arguments = pod["spec"]["containers"][0]["args"]
        found = run_clean_up(credentials.kubeconfig, arguments)
        self.exit_codes.append(found.returncode)
        self.output += found.stderr
        container = {
            "name": "cleanup",
            "image": "played",
            "imageID": "played",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": found.returncode}},
        }
        status = {
            "phase": "Failed" if found.returncode else "Succeeded",
            "containerStatuses": [container],
        }
        try:
            self._cluster.api.patch(f"{_PODS}/{name}/status", {"status": status})
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise


def run_clean_up(kubeconfig: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The program of the Job, with somebody's rights."""
    return subprocess.run(
        [*(sys.executable, "-m", "modelcache_operator", *arguments), f"--kubeconfig={kubeconfig}"],
        capture_output=True,
        text=True,
        check=False,
    )
