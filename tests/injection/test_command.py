"""`kubectl modelcache inject`: equal to the definition on the table, in every kind of document."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from injection.pods import CACHES, LABEL, ROWS, cache_of, copy_of, make_pod
from modelcache_cli.__main__ import app
from modelcache_cli.errors import CliError
from modelcache_cli.inject import Lookup, inject_text
from modelcache_kube import ConnectConfig, connect
from modelcache_operator.injection import InjectionSettings, KnownCache, make_injection
from modelcache_operator.json_patch import add_all

SETTINGS = InjectionSettings("agent:1")


class PlayedKube:
    """ModelCaches of the namespace `here`, as an API server would give them."""

    def __init__(self, caches=CACHES) -> None:
        self._caches = caches
        self.asked: list[tuple[str, str]] = []

    async def get(self, resource, name, namespace=None):
        self.asked.append((namespace, name))
        known: KnownCache | None = self._caches.get(name) if namespace == "here" else None
        if known is None:
            return None
        tracks = [
            {"name": track, "modelVersion": "v", "nodeLabelKey": key}
            for track, key in known.label_keys.items()
        ]
        copies = {"placed": 1, "failed": 0 if known.is_warm else 1}
        status = {"tracks": tracks, "copies": copies}
        return {"spec": {"stable": {"modelVersion": "v"}}, "status": status}


async def inject(*documents, kube=None, namespace="here"):
    text = yaml.safe_dump_all(documents)
    injected = await inject_text(text, Lookup(kube or PlayedKube()), namespace, SETTINGS)
    return list(yaml.safe_load_all(injected.text)), injected.notes


def expected(row):
    return add_all(copy_of(row), make_injection(row.pod, cache_of(row), SETTINGS).operations)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_a_pod_gets_what_the_definition_gives(row):
    documents, notes = await inject(copy_of(row))
    assert documents == [expected(row)]
    assert any("kept" in note for note in notes) is bool(row.lacks)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "LeaderWorker"])
async def test_a_pod_template_gets_it_and_the_rest_stays(kind):
    pod = make_pod()
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    document = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "d", "labels": {LABEL: "m"}},
        "spec": {"replicas": 3, "template": template},
    }
    (result,), _ = await inject(document)
    assert result["metadata"] == document["metadata"]
    assert result["spec"]["replicas"] == 3
    full = add_all(template, make_injection(template, CACHES["m"], SETTINGS).operations)
    assert result["spec"]["template"] == full


async def test_a_cron_job_and_a_list_are_looked_into():
    pod = make_pod()
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    cron = {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": template}}}}
    (listed,), _ = await inject({"kind": "List", "items": [cron, pod, {"kind": "Service"}]})
    inner = listed["items"][0]["spec"]["jobTemplate"]["spec"]["template"]
    assert inner["spec"]["volumes"] == listed["items"][1]["spec"]["volumes"]
    assert listed["items"][2] == {"kind": "Service"}


async def test_many_documents_keep_their_order_and_ask_once_for_each_cache():
    kube = PlayedKube()
    documents, _ = await inject(
        {"kind": "Service", "spec": {"ports": []}}, make_pod(), make_pod(), kube=kube
    )
    assert [document["kind"] for document in documents] == ["Service", "Pod", "Pod"]
    assert kube.asked == [("here", "m")]


async def test_the_documents_namespace_outweighs_the_chosen_one():
    elsewhere = make_pod()
    elsewhere["metadata"]["namespace"] = "there"
    kube = PlayedKube()
    (result,), notes = await inject(elsewhere, kube=kube)
    assert kube.asked == [("there", "m")]
    assert "affinity" not in result["spec"]
    assert "no ModelCache m in namespace there" in notes[0]


async def test_nothing_is_written_by_reference():
    text = yaml.safe_dump(make_pod())
    injected = await inject_text(text, Lookup(PlayedKube()), "here", SETTINGS)
    assert not any(isinstance(token, yaml.AliasToken) for token in yaml.scan(injected.text))


async def test_its_own_output_comes_back_unchanged():
    once, _ = await inject(make_pod())
    twice, notes = await inject(*once)
    assert (twice, notes) == (once, ())


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "a: [b\n", "{'a': 1\n"])
async def test_what_is_no_object_is_told_in_one_sentence(text):
    with pytest.raises(CliError):
        await inject_text(text, Lookup(PlayedKube()), "here", SETTINGS)


def test_offline_reads_stdin_and_needs_no_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    text = yaml.safe_dump(make_pod())
    result = CliRunner().invoke(app, ["inject", "-f", "-", "--offline"], input=text)
    assert result.exit_code == 0, result.output
    spec = yaml.safe_load(result.stdout)["spec"]
    assert spec["initContainers"][0]["name"] == "modelcache-wait"
    assert "affinity" not in spec


def test_a_missing_file_is_one_line(tmp_path):
    result = CliRunner().invoke(app, ["inject", "-f", str(tmp_path / "none"), "--offline"])
    assert result.exit_code == 1
    assert "cannot read" in result.output
    assert "Traceback" not in result.output


@pytest.mark.cluster
async def test_on_a_real_cluster_it_finds_the_model_cache(served, room):
    async with connect(ConnectConfig(kubeconfig=served.kubeconfig)) as kube:
        injected = await inject_text(
            yaml.safe_dump(make_pod()), Lookup(kube), room, InjectionSettings("agent:1")
        )
    row = next(row for row in ROWS if row.id == "plain")
    assert yaml.safe_load(injected.text) == expected(row)


@pytest.mark.cluster
def test_what_it_prints_can_be_applied(served, room):
    program = subprocess.run(
        [
            *(sys.executable, "-m", "modelcache_cli", "inject", "-f", "-"),
            *("-n", room, "--kubeconfig", str(served.kubeconfig)),
        ],
        input=yaml.safe_dump(make_pod()),
        capture_output=True,
        text=True,
        check=True,
    )
    applied = served.kubectl(
        "apply", "--dry-run=server", "-n", room, "-f", "-", stdin=program.stdout
    )
    assert "pod/p created" in applied


def test_the_container_that_waits_has_the_image_of_the_chart(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(make_pod()))
    done = CliRunner().invoke(app, ["inject", "--offline", "-f", str(file)])
    (waits,) = yaml.safe_load(done.stdout)["spec"]["initContainers"]
    chart = Path(__file__).parents[2] / "charts/modelcache"
    image = yaml.safe_load((chart / "values.yaml").read_text())["agent"]["image"]["repository"]
    version = yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"]
    assert waits["image"] == f"{image}:{version}"
