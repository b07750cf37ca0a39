"""The quick demo: the main job on a real model, a real S3 server and a real control plane."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from modelcache_api.names import LABEL_CACHE
from modelcache_testbed.bucket import Bucket, hash_tree, minilm_folder
from modelcache_testbed.console import answer, say
from modelcache_testbed.demo.host_part import HostPart
from modelcache_testbed.demo.rollout_part import RolloutPart
from modelcache_testbed.demo.scene import (
    BUCKET,
    CACHE,
    NAME,
    NODES,
    PREFIXES,
    TEAM,
    V1,
    V2,
    Scene,
)
from modelcache_testbed.demo.steps import check, start_step
from modelcache_testbed.demo.talk import Program
from modelcache_testbed.demo.watcher import Watcher
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.kube_api import find_condition
from modelcache_testbed.memory_cgroup import remove_left
from modelcache_testbed.models import build_namespace, build_secret
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

_PODS = tuple(f"embed-{number}" for number in range(4))
# Both versions fit, and neither is a model that this machine would miss.
_HOST_CAPACITY = "256Mi"


class ControlPlaneDemo:
    """One run. Everything it starts stays up afterwards, until `make demo-down`."""

    def __init__(self, picture: Path | None = None) -> None:
        """Refer to the demo's cluster, store and system; nothing is started yet.

        With a `picture` a Prometheus reads it all, and the dashboard is drawn there.
        """
        self._scene = Scene()
        self._watcher = None if picture is None else Watcher(self._scene, picture)
        self._expected: dict[str, str] = {}
        self._tier = "Host"

    def run(self) -> None:
        """Show the main job, step by step."""
        folder = self._scene.system.folder / "v2"
        log = self._scene.system.folder / "prepare.log"
        with Program("prepare", minilm_folder(), folder, log=log) as prepare:
            self.bring_up()
            if self._watcher is not None:
                self._watcher.begin()
            self.fill_bucket(prepare, folder)
            references = dict(zip((V1, V2), prepare.ask(), strict=True))
        self.apply_model()
        self.await_ready()
        self.show_objects()
        self.schedule_pods()
        self.verify_bytes()
        HostPart(self._scene, references[V1]).show()
        RolloutPart(self._scene, references).show()
        self.delete_cache()
        self.apply_model("Once more, so that there is something to look at.")
        self.await_ready()
        if self._watcher is not None:
            self._watcher.show()
        self.farewell()

    def bring_up(self) -> None:
        """Start control plane, store, operator and agents."""
        start_step(
            "A control plane (real), an S3 server (real), three nodes (played, with real agents)."
        )
        scene = self._scene
        scene.cluster.up(node_names=NODES)
        scene.store.up()
        scene.system.install()
        for node in NODES:
            labels = {"metadata": {"labels": {"pool": "gpu"}}}
            scene.cluster.api.patch(f"/api/v1/nodes/{node}", labels)
        scene.system.add_operator()
        for node in NODES:
            scene.add_agent(node, host_capacity=_HOST_CAPACITY)
        wait_until(
            lambda: len(scene.live_nodes()) == len(NODES),
            seconds=60,
            what="three CacheNodes that are Ready",
        )
        say(f"   agents on {', '.join(scene.live_nodes())} are alive")
        if scene.await_unfit() is not None:
            self._tier = "Disk"

    def fill_bucket(self, prepare: Program, v2: Path) -> None:
        """Put both versions of MiniLM into the bucket."""
        start_step("A real model into a real bucket: all-MiniLM-L6-v2, 91 MB and its small files.")
        bucket = Bucket(self._scene.store, BUCKET)
        self._expected = bucket.put_folder(minilm_folder(), PREFIXES[V1])
        say(f"   {len(self._expected)} files under s3://{BUCKET}/{PREFIXES[V1]}")
        prepare.ready()
        bucket.put_folder(v2, PREFIXES[V2])
        say(f"   and for later s3://{BUCKET}/{PREFIXES[V2]}: its weights cast to bfloat16, 45 MB")

    def apply_model(
        self, text: str = "kubectl apply: a ModelVersion (what) and a ModelCache (where: 2 copies)."
    ) -> None:
        """Apply Secret, ModelVersion and ModelCache."""
        start_step(text)
        scene = self._scene
        scene.cluster.apply([build_namespace(TEAM)])
        wait_until(
            lambda: (
                scene.cluster.api.find(f"/api/v1/namespaces/{TEAM}/serviceaccounts/default")
                is not None
            ),
            seconds=30,
            what=f"a service account in namespace {TEAM}",
        )
        scene.cluster.apply(
            [
                build_secret(TEAM, scene.store),
                scene.build_version(V1),
                scene.build_cache(tier=self._tier),
            ]
        )

    def await_ready(self) -> None:
        """Tell the progress until both copies are in their tier."""
        told = [""]

        def is_ready() -> bool:
            status = self._scene.status()
            ready = find_condition(status, "Ready")
            line = (
                f"   {status.get('copiesSummary', '0/2'):>5} copies  "
                f"{status.get('progress', '0%'):>4}  {ready.get('reason', 'Waiting')}"
            )
            if line != told[0]:
                say(line)
                told[0] = line
            in_tier = status.get("copies", {}).get("inTier")
            return ready.get("status") == "True" and in_tier == 2  # noqa: PLR2004 - copies: 2

        started = time.monotonic()
        wait_until(is_ready, seconds=120, what=f"two verified copies in tier {self._tier}")
        seconds = time.monotonic() - started
        say(f"   two verified copies in tier {self._tier} after {seconds:.1f} s")

    def show_objects(self) -> None:
        """Print what kubectl shows."""
        start_step(
            "What kubectl shows, and the labels that mean 'these bytes are verified here now'."
        )
        kubectl = self._scene.cluster.kubectl
        say(kubectl("get", "modelcaches,modelversions,cachenodes", "--namespace", TEAM).rstrip())
        say(kubectl("get", "nodes", f"--label-columns={self._scene.label_key()}").rstrip())

    def schedule_pods(self) -> None:
        """Create pods with the affinity and see where the real scheduler puts them."""
        start_step(
            "Pods with `kubectl modelcache affinity minilm`: the real scheduler takes warm nodes."
        )
        pods = self._scene.add_pods(*_PODS, labels={LABEL_CACHE: CACHE})
        chosen = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
        for name, node in sorted(chosen.items()):
            say(f"   {name} -> {node}")
        warm = self._scene.warm_nodes()
        check(set(chosen.values()) <= warm, f"all pods on warm nodes ({', '.join(sorted(warm))})")
        self._scene.remove_pods(*_PODS)

    def verify_bytes(self) -> None:
        """Compare both copies with the bucket."""
        start_step("The bytes on both nodes, hashed and compared with what lies in the bucket.")
        for node in sorted(self._scene.warm_nodes()):
            trees = self._scene.trees(node)
            check(len(trees) == 1, f"{node} holds one version")
            check(
                hash_tree(trees[0]) == self._expected, f"{node}: {len(self._expected)} files equal"
            )

    def delete_cache(self) -> None:
        """Delete the ModelCache and watch labels go before bytes."""
        start_step("kubectl delete modelcache: labels go first, then bytes.")
        scene = self._scene
        warm, key = scene.warm_nodes(V2), scene.label_key(V2)
        scene.cluster.kubectl("delete", "modelcache", CACHE, "--namespace", TEAM)

        def all_gone() -> bool:
            for node in warm:
                # Bytes are looked at before the label: bytes gone and label there is the fault.
                has_bytes = scene.has_bytes(node)
                if key in scene.labels(node) and not has_bytes:
                    raise TestbedError(f"{node} lost its bytes before its label")
            return not any(scene.has_bytes(node) for node in warm)

        wait_until(all_gone, seconds=60, what="labels and bytes gone")
        say(f"   no label and no byte left on {', '.join(sorted(warm))}")

    def farewell(self) -> None:
        """Say how to go on, and end with what kubectl shows."""
        say(f"\nLook around with: export KUBECONFIG={self._scene.cluster.kubeconfig}")
        say("End everything with: make demo-down\n")
        say("$ kubectl get modelcaches --all-namespaces")
        answer(self._scene.cluster.kubectl("get", "modelcaches", "--all-namespaces").rstrip())

    def down(self) -> None:
        """End everything that any run of the demo started and remove its files."""
        self._scene.system.remove()
        self._scene.store.down()
        self._scene.cluster.down()
        remove_left(NAME)

    @property
    def logs(self) -> str:
        """Say where to look after a failure."""
        return f"logs are under {self._scene.system.folder}"
