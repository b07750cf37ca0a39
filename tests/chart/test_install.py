"""The chart on a real API server: admission, DaemonSet controller, upgrade."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile

import pytest
import yaml

from chart.conftest import NODES
from fakes.helm import CHART, NAMESPACE, render, run_helm
from modelcache_testbed.waiting import wait_until

pytestmark = pytest.mark.cluster
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEVEL = "pod-security.kubernetes.io/enforce"
EVERYTHING = {
    "namespace": {"create": True},
    "networkPolicy": {
        "sources": [{"ipBlock": {"cidr": "10.9.0.0/16"}}],
        "apiServer": [{"ipBlock": {"cidr": "10.1.0.1/32"}}],
    },
    "image": {"pullSecrets": ["mirror"]},
    "guards": {"exemptGroups": ["example:break-glass"]},
    "agent": {
        "maxUnavailable": "10%",
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "profiles": [
            {"name": "a", "nodeSelector": {"pool": "a"}, "disk": {"path": "/mnt/a"}},
            {
                "name": "b",
                "nodeSelector": {},
                "excludeNodes": {"pool": ["a"]},
                "disk": {"path": "/mnt/b", "capacity": "1Ti", "requireMountpoint": True},
                "host": {"capacity": "64Gi"},
            },
        ],
    },
}


def agent_nodes(cluster) -> set[str]:
    """Where the DaemonSet controller has put agents."""
    found = cluster.api.get(PODS, labelSelector="app.kubernetes.io/component=agent")["items"]
    return {_bound_to(pod) for pod in found}


def _bound_to(pod) -> str:
    # A pod of a DaemonSet names its node before it is bound.
    terms = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])


def status_of(cluster, name="modelcache-agent-default") -> dict:
    found = cluster.api.find(f"{DAEMONSETS}/{name}") or {}
    return dict(found.get("status", {}))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"injection": {"mode": "webhook"}}, id="injection by webhook"),
        pytest.param(EVERYTHING, id="everything"),
    ],
)
def test_the_server_takes_every_object_in_a_dry_run(own_cluster, release, values):
    own_cluster.create_namespace(NAMESPACE)
    documents = render(values)
    text = yaml.safe_dump_all(documents)
    flags = ("--server-side", "--dry-run=server", "--validate=strict")
    told = own_cluster.kubectl("apply", *flags, "-f", "-", stdin=text)
    assert len(told.splitlines()) == len(documents)
    assert "Warning" not in told


def test_C39_agents_are_on_gpu_fresh_and_cordoned_nodes_and_on_others_by_value(
    own_cluster, release
):
    release.install()
    usual = {"plain", "gpu", "fresh", "cordoned"}
    wait_until(lambda: agent_nodes(own_cluster) == usual, seconds=30, what=f"agents on {usual}")
    wait_until(
        lambda: status_of(own_cluster).get("desiredNumberScheduled") == len(usual),
        seconds=10,
        what="the DaemonSet's count",
    )
    release.upgrade({"agent": {"tolerations": [NODES["team"][0] | {"operator": "Equal"}]}})
    wait_until(
        lambda: agent_nodes(own_cluster) == usual | {"team"},
        seconds=30,
        what="an agent on the team's node as well",
    )
    assert "foreign" not in agent_nodes(own_cluster)


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_C47_a_namespace_that_enforces_more_admits_the_operator_and_no_agent(
    own_cluster, release, level
):
    own_cluster.create_namespace(NAMESPACE, {LEVEL: level})
    release.install()

    def reasons() -> set[str]:
        events = own_cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        return {
            event["message"]
            for event in events
            if event["reason"] == "FailedCreate" and event["involvedObject"]["kind"] == "DaemonSet"
        }

    wait_until(lambda: bool(reasons()), seconds=30, what="the DaemonSet's complaint")
    assert all("hostPath" in message for message in reasons())
    assert status_of(own_cluster).get("currentNumberScheduled", 0) == 0
    wait_until(
        lambda: len(_operators(own_cluster)) == 2, seconds=30, what=f"operators under {level}"
    )
    # What NOTES.txt says helps, helps.
    own_cluster.kubectl("label", "--overwrite", "ns", NAMESPACE, f"{LEVEL}=privileged")
    own_cluster.kubectl("rollout", "restart", "-n", NAMESPACE, "ds/modelcache-agent-default")
    wait_until(lambda: "plain" in agent_nodes(own_cluster), seconds=60, what="agents")


def _operators(cluster) -> list:
    found = cluster.api.get(PODS, labelSelector="app.kubernetes.io/component=operator")
    return list(found["items"])


def test_the_notes_say_what_a_host_tier_requests(release):
    profile = {"name": "big", "nodeSelector": {}, "disk": {"path": "/d"}}
    profile["host"] = {"capacity": "64Gi"}
    notes = release.install({"agent": {"profiles": [profile]}}, "--dry-run=client")
    assert "profile big keep models in 64Gi of memory" in notes
    del profile["host"]
    notes = release.install({"agent": {"profiles": [profile]}}, "--dry-run=client")
    assert "of memory, for ModelCaches" not in notes


def test_helm_labels_an_existing_namespace_on_request(own_cluster, release):
    own_cluster.create_namespace(NAMESPACE)
    release.install({"namespace": {"create": True}}, "--take-ownership")
    found = own_cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}")
    assert found["metadata"]["labels"][LEVEL] == "privileged"
    release.uninstall("--no-hooks")
    assert own_cluster.api.find(f"/api/v1/namespaces/{NAMESPACE}") is not None, "it is kept"


def previous_chart(folder):
    """The chart as it was before its last change, or None where there is no history."""
    root = CHART.parents[1]

    def git(*arguments):
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, check=False
        )

    dirty = git("status", "--porcelain", "--", str(CHART)).stdout.strip()
    commits = git("log", "-2", "--format=%H", "--", "charts/modelcache").stdout.decode().split()
    chosen = commits[0:1] if dirty else commits[1:2]
    if not chosen:
        return None
    archive = git("archive", chosen[0], "charts/modelcache").stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    chart = folder / "charts" / "modelcache"
    return chart if (chart / "Chart.yaml").exists() else None


def test_upgrade_from_the_previous_chart_leaves_what_a_fresh_install_makes(
    own_cluster, release, tmp_path
):
    previous = previous_chart(tmp_path)
    if previous is None:
        pytest.skip("there is no earlier chart in the history")
    release.install(chart=previous)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/modelcache-operator"
    before = own_cluster.api.get(path)["metadata"]["uid"]
    release.upgrade()
    assert own_cluster.api.get(path)["metadata"]["uid"] == before, "changed in place"
    flags = ("-n", NAMESPACE, f"--kubeconfig={own_cluster.kubeconfig}")
    installed = run_helm("get", "manifest", "modelcache", *flags)
    wanted = render(hooks=False)
    assert _by_name(yaml.safe_load_all(installed)) == _by_name(wanted)
    for document in wanted:
        own_cluster.kubectl(
            "get", document["kind"], document["metadata"]["name"], "-n", NAMESPACE, "-o", "name"
        )


def _by_name(documents) -> dict:
    return {
        (item["kind"], item["metadata"]["name"]): json.dumps(item, sort_keys=True)
        for item in documents
        if item
    }


@pytest.mark.parametrize("mode", ["policy", "webhook"])
def test_an_upgrade_that_changes_nothing_restarts_nobody(own_cluster, release, mode):
    values = {"injection": {"mode": mode}}
    release.install(values)
    before, certificate = _generations(own_cluster), _webhook_certificate(own_cluster)
    release.upgrade(values)
    assert _generations(own_cluster) == before
    assert _webhook_certificate(own_cluster) == certificate, "kept, not made anew"
    assert bool(certificate) is (mode == "webhook")


def _webhook_certificate(cluster) -> dict:
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/modelcache-webhook-tls"
    return dict((cluster.api.find(path) or {}).get("data", {}))


def _generations(cluster) -> dict:
    found = cluster.api.get(DAEMONSETS)["items"]
    found += cluster.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")["items"]
    return {item["metadata"]["name"]: item["metadata"]["generation"] for item in found}


def test_a_second_release_is_refused_before_it_takes_anything_over(own_cluster, release):
    release.install()
    own_cluster.create_namespace("second")
    flags = ("-n", "second", f"--kubeconfig={own_cluster.kubeconfig}")
    with pytest.raises(Exception, match="invalid ownership metadata"):
        run_helm("install", "other", str(CHART), *flags)
    own_cluster.delete_namespace("second")
