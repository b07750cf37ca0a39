"""`kubectl modelcache plan`: what fits, what does not, and why."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from modelcache_cli.__main__ import app

VERSION = """
apiVersion: modelcache.io/v1alpha1
kind: ModelVersion
metadata: {{name: {name}, namespace: search}}
spec: {{model: {model}, source: {{uri: "s3://models/{name}"}}}}
---
"""
CACHE = """
apiVersion: modelcache.io/v1alpha1
kind: ModelCache
metadata: {{name: {name}, namespace: search}}
spec:
  stable: {{modelVersion: {name}}}
  placement: {{copies: {copies}, nodeSelector: {{pool: gpu}}}}
---
"""
NODES = "nodes:\n- {name: gpu, count: 3, disk: 100Gi, labels: {pool: gpu}}\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "manifests").mkdir()
    return tmp_path


def put(folder, name, *, copies=2, model="test/unheard-of"):
    text = VERSION.format(name=name, model=model) + CACHE.format(name=name, copies=copies)
    (folder / "manifests" / f"{name}.yaml").write_text(text + "kind: Service\n")


def plan(folder, *arguments):
    files = ["-f", str(folder / "manifests"), "--nodes", str(folder / "nodes.yaml")]
    return CliRunner().invoke(app, ["plan", *files, *arguments])


def test_what_fits_is_placed_with_its_arithmetic(folder):
    put(folder, "a", copies=3)
    put(folder, "b")
    done = plan(folder, "--size", "a=20Gi", "--size", "b=40Gi", "--within", "40s", "-o", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["fits"]
    assert sorted(node["bookedBytes"] >> 30 for node in found["nodes"]) == [20, 60, 60]
    assert found["storage"]["redundancy"] == 2.5
    assert found["storage"]["neededBytes"] >> 30 == 168, "2 x 28 GiB x 2.5 x 1.2"
    assert found["bandwidth"]["storeBytesPerSecond"] * 40 >> 30 == 140, "5 x 28 GiB"
    assert found["bandwidth"]["diskBytesPerSecond"] * 40 >> 30 == 280


def test_C16_what_is_refused_is_told_by_the_operators_own_words(folder):
    put(folder, "a", copies=2)
    put(folder, "b", copies=2)
    put(folder, "c", copies=1)
    done = plan(folder, "--size", "a=60Gi", "--size", "b=60Gi", "--size", "c=200Gi")
    assert done.exit_code == 1
    assert "refused: search/b: InsufficientSpace: 1 of 2 copies have a node" in done.stdout
    assert "refused: search/c: NeverFits" in done.stdout
    assert done.stdout.endswith("it does not fit\n")


def test_a_node_without_headroom_is_named(folder):
    put(folder, "a", copies=1)
    done = plan(folder, "--size", "a=90Gi")
    assert done.exit_code == 1
    assert "leaves less than 20% more" in done.stdout
    assert plan(folder, "--size", "a=90Gi", "--headroom", "0.1").exit_code == 0


def test_the_size_of_a_well_known_model_is_in_the_catalogue(folder):
    put(folder, "llama", model="meta-llama/Llama-3.1-8B")
    assert "15Gi" in plan(folder).stdout


def test_a_missing_version_is_a_refusal_and_a_missing_size_a_question(folder):
    put(folder, "a")
    assert "give --size search/a=16Gi" not in plan(folder).stderr
    assert "give --size a=16Gi" in plan(folder).stderr
    (folder / "manifests" / "a.yaml").write_text(CACHE.format(name="a", copies=1))
    done = plan(folder)
    assert "refused: search/a: ModelVersionNotFound" in done.stdout
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("nodes: [{name: a}]", "nodes.0.disk"),
        ("nodes: [{name: a, disk: 1Gi}, {name: a, disk: 1Gi}]", "names a node twice"),
        ("nodes: [{name: a, disk: 1Gi, memory: 1Gi}]", "nodes.0.memory"),
        ("[", "is no YAML"),
    ],
)
def test_a_wrong_file_of_nodes_is_said_in_one_line(folder, nodes, says):
    put(folder, "a")
    (folder / "nodes.yaml").write_text(nodes)
    done = plan(folder, "--size", "a=1Gi")
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_manifest_that_the_api_would_refuse_is_named(folder):
    (folder / "manifests" / "a.yaml").write_text(
        "kind: ModelCache\nmetadata: {name: a}\nspec: {}\n"
    )
    done = plan(folder)
    assert done.exit_code == 2
    assert "ModelCache default/a is not what the API takes" in done.stderr
