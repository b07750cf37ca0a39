"""The control plane itself: twice, after a kill, beside another copy, and gone without a trace."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from modelcache_testbed import Cluster, LocalCluster, TestbedError, wait_until

pytestmark = pytest.mark.cluster

RUN_THAT_DIES = """
import os, signal

def test_dies(cluster, namespace):
    assert cluster.api.get(f"/api/v1/namespaces/{namespace}")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass
class Machine:
    """One user's machine: the tool as a program, and what it has started."""

    state: Path

    @property
    def environment(self):
        paths = [str(Path(sys.modules["modelcache_testbed"].__file__).parents[1])]
        return {
            **os.environ,
            "MODELCACHE_STATE_DIR": str(self.state),
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
        }

    def python(self, *arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def tool(self, *arguments):
        result = self.python("-m", "modelcache_testbed", *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def processes(self):
        marker = str(self.state).encode()
        return [file for file in Path("/proc").glob("[0-9]*/cmdline") if marker in content(file)]


def content(file):
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def kubeconfig(machine):
    yield machine.tool("up", "--nodes", "n1,n2").splitlines()[-1]
    machine.tool("down")


@pytest.fixture(scope="module")
def up(kubeconfig):
    cluster = LocalCluster(Path(kubeconfig).parent)
    cluster.apply(
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mc"}},
            account("agent"),
            account("operator"),
        ]
    )
    return cluster


def account(name):
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": "mc"},
    }


def review(cluster, token, audience):
    spec = {"token": token, "audiences": [audience]}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    return cluster.api.create(path, {"spec": spec})["status"]


def test_up_twice_is_the_same_cluster(machine, up, kubeconfig):
    before = up.status()
    assert machine.tool("up").splitlines()[-1] == kubeconfig
    assert up.status() == before
    assert f"export KUBECONFIG={kubeconfig}" in machine.tool("env")


def test_up_repairs_after_a_kill(machine, up, kubeconfig):
    killed = up.status()
    for name in ("kube-apiserver", "node-keeper"):
        os.kill(killed[name], signal.SIGKILL)
    assert machine.tool("up").splitlines()[-1] == kubeconfig
    assert all(up.status().values())
    assert up.status()["etcd"] == killed["etcd"]
    assert up.api.find("/api/v1/nodes/n1")


def test_two_instances_live_side_by_side(machine, up):
    other = Path(machine.tool("up", "--name", "other").splitlines()[-1])
    assert LocalCluster(other.parent).api.server != up.api.server
    assert LocalCluster(other.parent).api.get("/api/v1/nodes")["items"] == []
    machine.tool("down", "--name", "other")
    assert not other.parent.exists()
    assert not [p for p in machine.processes() if str(other.parent).encode() in content(p)]
    assert up.api.find("/api/v1/nodes/n1")


def test_a_killed_test_run_is_cleaned_up_by_the_next(machine, up, tmp_path, monkeypatch):
    (tmp_path / "test_run.py").write_text(RUN_THAT_DIES)
    plugin = ["-p", "modelcache_testbed.pytest_plugin", "-p", "no:cacheprovider"]
    run = machine.python("-m", "pytest", *plugin, f"--rootdir={tmp_path}", str(tmp_path))
    assert run.returncode == -signal.SIGKILL, run.stdout
    monkeypatch.setenv("MODELCACHE_STATE_DIR", str(machine.state))
    assert len(LocalCluster.reap()) == 1
    assert [path.name for path in (machine.state / "clusters").iterdir()] == ["default"]
    assert len(machine.processes()) == len(up.status())


def test_a_component_goes_away_and_comes_back_on_its_port(up):
    server = up.api.server
    up.stop("kube-apiserver")
    with pytest.raises(TestbedError, match="does not answer"):
        up.api.get("/api/v1/nodes")
    up.start("kube-apiserver")
    assert up.api.server == server
    assert up.api.get("/api/v1/nodes")["items"]


def test_an_unknown_component_is_told(up):
    with pytest.raises(TestbedError, match=r"no component 'kube-proxy'; there is: etcd, "):
        up.stop("kube-proxy")


def test_an_agent_is_known_by_its_pod_and_node(up, tmp_path):
    agent = up.agent_credentials("n1", "mc", "agent", tmp_path)
    status = review(up, agent.grant_token_file.read_text(), "modelcache-grant")
    extra = status["user"]["extra"]
    assert status["user"]["username"] == "system:serviceaccount:mc:agent"
    assert extra["authentication.kubernetes.io/node-name"] == ["n1"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [agent.pod_uid]
    assert not review(up, agent.token_file.read_text(), "modelcache-grant").get("authenticated")


def test_an_agent_keeps_its_pod_and_gets_new_tokens(up, tmp_path):
    first = up.agent_credentials("n2", "mc", "agent", tmp_path)
    token = first.token_file.read_text()
    again = up.agent_credentials("n2", "mc", "agent", tmp_path)
    assert again.pod_uid == first.pod_uid
    assert again.token_file.read_text() != token


def test_denied_requests_are_found_in_the_audit_log(up, tmp_path):
    since = up.audit.position()
    operator = up.service_account_kubeconfig("mc", "operator", tmp_path)
    served = Cluster(operator.kubeconfig)
    with pytest.raises(TestbedError, match="HTTP 403"):
        served.api.get("/api/v1/secrets")
    assert [event.resource for event in up.audit.denied(since)] == ["secrets"]


def test_a_missing_service_account_is_told(up, tmp_path):
    with pytest.raises(TestbedError, match="mc/nobody does not exist"):
        up.agent_credentials("n1", "mc", "nobody", tmp_path)


def test_a_played_node_is_lost_and_returns(up):
    up.add_node("n3", labels={"pool": "gpu"}, capacity={"nvidia.com/gpu": "8"})
    up.lose_node("n3")

    def is_tainted():
        return bool(up.api.get("/api/v1/nodes/n3")["spec"].get("taints"))

    wait_until(is_tainted, seconds=20, what="taint of a lost node")
    up.recover_node("n3")
    wait_until(lambda: not is_tainted(), seconds=20, what="end of the taint")
    up.remove_node("n3")
    assert up.api.find("/api/v1/nodes/n3") is None


def test_down_leaves_no_process_and_no_folder(machine, up):
    machine.tool("down")
    assert machine.processes() == []
    assert list((machine.state / "clusters").iterdir()) == []
    machine.tool("down")
