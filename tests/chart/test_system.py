"""The whole system under the chart's rights and guards, from install to uninstall."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from chart.conftest import remove_namespace
from fakes.chart_system import ChartSystem, CleanUpPlayer, run_clean_up
from fakes.helm import NAMESPACE, HelmError
from fakes.world import API, PREFIX, World

pytestmark = pytest.mark.cluster
OPERATOR = ("--lease-list-interval=1s", "--agent-lost-after=10s")
TEAM = "chart-team"
MODELS = ("a", "b", "c")


@pytest.fixture
def world(own_cluster, seaweed, tmp_path, release) -> Iterator[World]:
    """Operator and two agents with models; nodes are this test's own."""
    system = ChartSystem(own_cluster, tmp_path / "system")
    system.install()
    world = World(own_cluster, seaweed, system, "chart")
    try:
        system.add_operator(extra=OPERATOR)
        for suffix in ("n1", "n2"):
            node = world.add_node(suffix, agent=False)
            system.add_agent(node, capacity="1Gi", extra=("--lease-interval=2s",))
        world.add_namespace("team")
        yield world
    finally:
        _end(world)


def _end(world: World) -> None:
    world.system.remove()
    for node in world.nodes:
        world.cluster.remove_node(node)
    for namespace in world.namespaces:
        if world.cluster.api.find(f"/api/v1/namespaces/{namespace}") is not None:
            remove_namespace(world.cluster, namespace)


def apply_models(world: World) -> None:
    for name in MODELS:
        world.put_model(name, size_bytes=20_000, seed=ord(name))
        world.apply_version(TEAM, name, name)
        world.apply_cache(TEAM, name, name, copies="All")
    for name in MODELS:
        world.wait_ready(TEAM, name, copies=2)
    world.wait(lambda: all(len(world.labels(node)) == 3 for node in world.nodes), "all labels")


def ours(world: World) -> dict[str, list[str]]:
    """What of ours is on nodes and in the namespace, beside what Helm and Kubernetes put there."""
    api = world.cluster.api
    inside = f"/api/v1/namespaces/{NAMESPACE}"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    found = {
        "labels": [
            key
            for node in api.get("/api/v1/nodes")["items"]
            for key in node["metadata"]["labels"]
            if key.startswith(PREFIX)
        ],
        "cachenodes": _names(api.get(f"{API}/cachenodes")),
        "leases": _names(api.get(leases)),
        "configmaps": _names(api.get(f"{inside}/configmaps")),
        "secrets": _names(api.get(f"{inside}/secrets")),
    }
    found["configmaps"] = [name for name in found["configmaps"] if name != "kube-root-ca.crt"]
    return {kind: names for kind, names in found.items() if names}


def _names(listed) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def marked(world: World) -> set[str]:
    """Everything in the cluster with the chart's label."""
    kinds = world.cluster.kubectl("api-resources", "--verbs=list,delete", "-o", "name").split()
    skipped = ("events", "events.events.k8s.io")
    return set(
        world.cluster.kubectl(
            *("get", ",".join(kind for kind in kinds if kind not in skipped), "-A"),
            *("-l", "app.kubernetes.io/name=modelcache", "-o", "name", "--ignore-not-found"),
        ).split()
    )


def test_C53_nothing_is_denied_under_exactly_the_charts_rights_and_guards(world):
    position = world.cluster.audit.position()
    apply_models(world)
    # An agent that dies, comes back, and a model that goes.
    lost = world.system.agents[world.nodes[0]]
    lost.kill()
    world.wait(lambda: not world.labels(world.nodes[0]), "the labels of a dead agent gone")
    lost.start()
    world.wait(lambda: len(world.labels(world.nodes[0])) == 3, "labels back")
    world.cluster.kubectl("delete", "modelcache", "a", "-n", TEAM)
    world.wait(lambda: all(len(world.labels(node)) == 2 for node in world.nodes), "a label gone")
    denied = [
        (event.user, event.verb, event.uri)
        for event in world.cluster.audit.denied(position)
        if ":modelcache-" in event.user
    ]
    assert denied == []
    for program in (*world.system.operators.values(), *world.system.agents.values()):
        program.assert_alive()


def test_C47_without_any_agent_the_operator_says_so(world):
    for agent in world.system.agents.values():
        agent.kill()
    world.put_model("m", size_bytes=20_000)
    world.apply_version(TEAM, "m", "m")
    world.apply_cache(TEAM, "m", "m", copies=1)
    told = world.wait_reason("modelcaches", TEAM, "m", "AgentsNotRunning", seconds=90)
    assert "DaemonSet" in told["message"]


def test_C49_uninstall_with_models_and_a_dead_agent_then_objects_then_namespace(world, tmp_path):
    apply_models(world)
    world.system.agents[world.nodes[1]].kill()
    assert ours(world).keys() == {"labels", "cachenodes", "leases", "configmaps", "secrets"}
    started = time.monotonic()
    with CleanUpPlayer(world.cluster, tmp_path / "cleanup") as player:
        world.system.release.uninstall("--timeout=120s")
    assert time.monotonic() - started < 60
    assert player.exit_codes == [0], player.output
    # Operator and one agent still run, and write nothing any more.
    assert world.stays(lambda: ours(world) == {}, 8)
    kinds = {"customresourcedefinition.apiextensions.k8s.io"}
    world.wait(lambda: {item.partition("/")[0] for item in marked(world)} == kinds, "the rest gone")
    # Users' objects are theirs; they go at once when they are told to, and so does the rest.
    assert set(_names(world.cluster.api.get(f"{API}/namespaces/{TEAM}/modelcaches"))) == {*MODELS}
    seconds = "--timeout=60s"
    world.cluster.kubectl("delete", "modelcaches,modelversions", "--all", "-n", TEAM, seconds)
    world.cluster.kubectl("delete", "crd", "--all", seconds)
    remove_namespace(world.cluster)
    assert (world.system.store_of(world.nodes[0]) / "versions").exists(), "bytes stay"


def test_C49_uninstall_refuses_while_pods_have_volumes_that_nobody_could_unmount(world, tmp_path):
    apply_models(world)
    container = {"name": "main", "image": "app"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "reader", "labels": {"modelcache.io/cache": "a"}},
        "spec": {"containers": [container], "nodeSelector": {"world": world.name}},
    }
    path = f"/api/v1/namespaces/{TEAM}/pods"
    world.cluster.api.create(path, pod)
    world.wait(
        lambda: "nodeName" in world.cluster.api.get(f"{path}/reader")["spec"], "the reader bound"
    )
    with (
        CleanUpPlayer(world.cluster, tmp_path / "cleanup") as player,
        pytest.raises(HelmError, match="cleanup failed: PodFailurePolicy"),
    ):
        world.system.release.uninstall("--timeout=60s")
    assert player.exit_codes == [3], "once, for trying again does not help"
    assert f"{TEAM}/reader" in player.output
    assert "delete them first" in player.output
    assert all(len(world.labels(node)) == 3 for node in world.nodes), "nothing was touched"
    world.cluster.api.delete(f"{path}/reader", {"gracePeriodSeconds": 0})
    with CleanUpPlayer(world.cluster, tmp_path / "cleanup-2") as player:
        world.system.release.uninstall("--timeout=120s")
    assert player.exit_codes == [0], player.output
    assert ours(world) == {}


def test_C49_objects_and_definitions_first_then_uninstall(world, tmp_path):
    apply_models(world)
    for kind in ("modelcaches", "modelversions"):
        world.cluster.kubectl("delete", kind, "--all", "-n", TEAM, "--timeout=60s")
    world.cluster.kubectl("delete", "crd", "--all", "--timeout=60s")
    with CleanUpPlayer(world.cluster, tmp_path / "cleanup") as player:
        world.system.release.uninstall("--timeout=120s")
    assert player.exit_codes == [0], player.output
    labels = [key for node in world.nodes for key in world.labels(node)]
    assert labels == []
    world.wait(lambda: marked(world) == set(), "everything gone")


def test_C49_a_clean_up_that_cannot_run_ends_in_time_and_is_done_by_hand(world, tmp_path):
    apply_models(world)
    world.system.release.upgrade({"uninstall": {"timeoutSeconds": 10}})
    started = time.monotonic()
    with pytest.raises(HelmError, match=r"DeadlineExceeded|timed out|failed"):
        world.system.release.uninstall("--timeout=60s")
    assert time.monotonic() - started < 60
    world.system.release.uninstall("--no-hooks")
    assert ours(world)["labels"], "which is why there is a clean-up"
    run = run_clean_up(world.cluster.kubeconfig, ["cleanup", f"--namespace={NAMESPACE}"])
    assert run.returncode == 0, run.stderr
    assert ours(world) == {}
