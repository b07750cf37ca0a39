"""`kubectl modelcache bundle`: what is in the archive, and what is not."""

from __future__ import annotations

import io
import json
import stat
import tarfile
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import yaml
from typer.testing import CliRunner

from builders import NOW
from fakes.played_objects import PlayedKube, cache, condition, node, version
from modelcache_api.decisions import Decision, DecisionKind, Decisions
from modelcache_cli.__main__ import app
from modelcache_cli.bundle import collecting, commands
from modelcache_cli.bundle.archive import pack
from modelcache_cli.bundle.collecting import (
    BundleRequest,
    choose_events,
    choose_nodes,
    choose_pods,
    collect,
    trim_node,
)
from modelcache_cli.errors import CliError
from modelcache_kube import Forbidden, Invalid

SYSTEM = "modelcache-system"
REQUEST = BundleRequest(SYSTEM, None, 100, 10)
SIGNED = "https://s3.example/b/k?X-Amz-Signature=deadbeef"
DECISION = Decision(at=60, kind=DecisionKind.PRESSURE_BEGAN, cause="92 % are used")


def a_pod(name, component, node_name="n1", restarts=0):
    return {
        "metadata": {
            "name": name,
            "namespace": SYSTEM,
            "labels": {"app.kubernetes.io/component": component},
        },
        "spec": {
            "nodeName": node_name,
            "containers": [{"name": component, "env": [{"name": "HF_TOKEN", "value": "hunter2"}]}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": component, "restartCount": restarts}],
        },
    }


class PlayedCluster(PlayedKube):
    """With logs, a version and decisions. A Secret may never be asked for."""

    async def read_version(self):
        return {"gitVersion": "v1.36.0"}

    async def read_log(self, name, namespace, *, container, previous, **_limits):
        if "logs" in self.forbidden:
            raise Forbidden("403: pods/log", code=403)
        if previous and name == "never-started":
            raise Invalid("400: previous terminated container not found", code=400)
        return f"2026-01-01T00:00:00Z GET {SIGNED} failed\n"

    async def read_from_pod(self, name, namespace, *, port, path):
        return Decisions(decisions=(DECISION,)).model_dump(mode="json", by_alias=True)

    async def list(self, resource, namespace=None, **selectors):
        assert resource.plural != "secrets"
        return await super().list(resource, namespace, **selectors)

    async def get(self, resource, name, namespace=None):
        assert resource.plural != "secrets"
        return await super().get(resource, name, namespace)


def a_cluster(forbidden=()):
    failed = version(conditions=[condition("Ready", "False", "AuthFailed", f"GET {SIGNED}: 403")])
    return PlayedCluster(
        forbidden,
        modelversions=[failed],
        modelcaches=[cache()],
        cachenodes=[node("n1")],
        nodes=[{"metadata": {"name": "n1", "annotations": {"x": "hunter2"}}, "spec": {}}],
        pods=[a_pod("operator-1", "operator", restarts=2), a_pod("agent-1", "agent")],
        configmaps=[
            {
                "metadata": {"name": "modelcache-limits", "namespace": SYSTEM},
                "data": {"limits.yaml": "{}"},
            }
        ],
    )


async def test_objects_logs_and_decisions_are_in_it():
    got = await collect(a_cluster(), REQUEST)
    assert got.missing == []
    assert set(got.files) == {
        "cluster/nodes.yaml",
        "cluster/version.yaml",
        "decisions/n1.json",
        "logs/agent-1/agent.log",
        "logs/operator-1/operator.log",
        "logs/operator-1/operator.previous.log",
        "objects/cachenodes.yaml",
        "objects/events.yaml",
        "objects/modelcachequotas.yaml",
        "objects/modelcaches.yaml",
        "objects/modelversions.yaml",
        "system/daemonsets.yaml",
        "system/deployments.yaml",
        "system/leases.yaml",
        "system/modelcache-limits.yaml",
        "system/pods.yaml",
    }
    (told,) = yaml.safe_load(got.files["objects/modelversions.yaml"])
    assert told["status"]["conditions"][0]["reason"] == "AuthFailed"
    assert json.loads(got.files["decisions/n1.json"])["decisions"][0]["kind"] == "PressureBegan"


async def test_no_file_has_a_secret():
    got = await collect(a_cluster(), REQUEST)
    text = "\n".join(got.files.values())
    assert "deadbeef" not in text
    assert "hunter2" not in text
    assert "s3.example/b/k?<redacted>" in text


async def test_what_may_not_be_read_is_told_and_the_rest_is_there():
    got = await collect(a_cluster(["nodes", "leases", "logs"]), REQUEST)
    assert [line.partition(":")[0] for line in got.missing] == [
        "nodes",
        "leases",
        "logs/operator-1/operator.log",
        "logs/operator-1/operator.previous.log",
        "logs/agent-1/agent.log",
    ]
    assert "objects/modelcaches.yaml" in got.files


async def test_where_nothing_can_be_read_there_is_no_archive():
    class Refusing(PlayedCluster):
        async def read_version(self):
            raise Forbidden("403: version", code=403)

        async def list(self, resource, namespace=None, **_selectors):
            raise Forbidden("403: no", code=403)

        async def get(self, resource, name, namespace=None):
            raise Forbidden("403: no", code=403)

    with pytest.raises(CliError, match="nothing can be read: the cluster's version: 403"):
        await collect(Refusing(), REQUEST)


def test_nodes_that_are_not_well_come_first_and_only_so_many():
    pressed = node("n3")
    pressed["status"]["conditions"].append(condition("DiskPressure", reason="DiskPressure"))
    nodes = [node("n1"), node("n4"), pressed, node("n2", alive=False)]
    assert choose_nodes(nodes, 3) == ["n2", "n3", "n1"]
    assert choose_nodes(nodes, 0) == []


async def test_a_node_of_another_release_is_looked_at_and_costs_nothing_else():
    strange = node("n5")
    strange["status"]["tiers"][0]["name"] = "Tape"
    assert choose_nodes([node("n1"), strange], 1) == ["n5"]
    kube = a_cluster()
    kube.objects["cachenodes"].append(strange)
    got = await collect(kube, REQUEST)
    assert "decisions/n5.json" in got.files


async def test_of_a_log_that_is_too_long_the_newest_lines_are_kept(monkeypatch):
    monkeypatch.setattr(collecting, "_LIMIT_BYTES", 1000)
    lines = [f"{number:07} a line" for number in range(300)]

    class Chatty(PlayedCluster):
        async def read_log(self, name, namespace, *, tail_lines, limit_bytes, **_which):
            """As the kubelet: the tail first, and of it the first bytes."""
            return "\n".join(lines[-tail_lines:])[:limit_bytes]

    chatty = Chatty(**a_cluster().objects)
    got = await collect(chatty, replace(REQUEST, log_lines=300))
    assert lines[-1] in got.files["logs/agent-1/agent.log"]


def test_agents_are_chosen_by_node_and_everything_else_is_taken():
    pods = [a_pod("operator-1", "operator", "n9"), a_pod("a1", "agent"), a_pod("a2", "agent", "n2")]
    assert [pod["metadata"]["name"] for pod in choose_pods(pods, ["n2"])] == ["operator-1", "a2"]


def test_events_of_others_are_left_out_and_the_newest_come_last():
    def event(name, api="modelcache.io/v1alpha1", namespace="search", at="2026-01-01T00:00:00Z"):
        return {
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": at},
            "regarding": {"apiVersion": api},
        }

    events = [
        event("late", at="2026-01-02T00:00:00Z"),
        event("early"),
        event("foreign", "v1"),
        event("pod", "v1", SYSTEM),
    ]
    names = [one["metadata"]["name"] for one in choose_events(events, SYSTEM)]
    assert names == ["early", "pod", "late"]


def test_of_a_node_annotations_and_addresses_stay_away():
    raw = {
        "metadata": {
            "name": "n1",
            "uid": "u",
            "labels": {"pool": "gpu"},
            "annotations": {"a": "b"},
        },
        "spec": {"providerID": "cloud://1"},
        "status": {"addresses": [{"address": "10.0.0.1"}], "conditions": []},
    }
    assert trim_node(raw) == {
        "name": "n1",
        "uid": "u",
        "labels": {"pool": "gpu"},
        "taints": [],
        "unschedulable": False,
        "conditions": [],
        "nodeInfo": None,
        "capacity": None,
        "allocatable": None,
    }


@pytest.mark.parametrize("name", ["../x", "/x", "a/../b", "a b", "a\nb"])
def test_no_name_leads_out_of_the_archive(name):
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        pack({name: ""}, "f", NOW)


def test_the_same_files_make_the_same_bytes():
    files = {"b": "2", "a/c": "1"}
    assert pack(files, "f", NOW) == pack(dict(reversed(files.items())), "f", NOW)


@pytest.fixture
def opened(monkeypatch, tmp_path):
    @asynccontextmanager
    async def open_played(choice):
        yield a_cluster(), choice.namespace or "search"

    monkeypatch.setattr(commands, "open_cluster", open_played)
    return tmp_path / "b.tar.gz"


def test_the_command_writes_a_new_file_for_its_owner_alone(opened):
    said = CliRunner().invoke(app, ["bundle", "--out", str(opened), "-ojson"])
    document = json.loads(said.stdout)
    assert (said.exit_code, document["missing"]) == (0, [])
    assert stat.S_IMODE(opened.stat().st_mode) == 0o600
    with tarfile.open(fileobj=io.BytesIO(opened.read_bytes())) as archive:
        names = {member.name.partition("/")[2] for member in archive}
    assert names == {*document["files"], "about.yaml"}
    again = CliRunner().invoke(app, ["bundle", "--out", str(opened)])
    assert (again.exit_code, "is there already: give another name" in again.stderr) == (1, True)


def test_a_folder_that_is_not_there_is_no_traceback(opened):
    said = CliRunner().invoke(app, ["bundle", "--out", str(opened.parent / "no/b.tar.gz")])
    assert (said.exit_code, said.stderr[:19]) == (1, "error: cannot write")
