"""`kubectl modelcache plan`: what fits, what does not, and why."""

from __future__ import annotations

import json

import pytest
import yaml
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


def test_tier_gpu_goes_to_nodes_with_room_on_their_card_and_is_charged_to_the_quota(folder):
    (folder / "nodes.yaml").write_text(
        "nodes:\n- {name: plain, disk: 200Gi, host: 100Gi, labels: {pool: gpu}}\n"
        "- {name: card, count: 2, disk: 200Gi, host: 100Gi, gpu: 80Gi, labels: {pool: gpu}}\n"
    )
    put(folder, "a", copies=2)
    manifest = folder / "manifests" / "a.yaml"
    manifest.write_text(manifest.read_text().replace("placement:", "tier: GPU\n  placement:"))
    done = plan(folder, "--size", "a=60Gi", "-o", "json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert found["modelCaches"][0]["nodes"] == ["card-1", "card-2"]
    assert {tier["name"]: tier["bookedBytes"] >> 30 for tier in found["tiers"]} == {
        "Disk": 120,
        "Host": 120,
        "GPU": 120,
    }
    assert "NeverFits" in plan(folder, "--size", "a=90Gi").stdout
    quota = QUOTA.format(disk="1Ti").replace("disk: 1Ti", "gpu: 100Gi")
    (folder / "manifests" / "q.yaml").write_text(quota)
    done = plan(folder, "--size", "a=60Gi")
    assert done.exit_code == 1
    assert "refused: search/a: QuotaExceeded" in done.stdout
    assert "quota: search: 60Gi of 100Gi of gpu" in done.stdout


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
    (line,) = done.stderr.splitlines()
    assert says in line


def test_it_is_printed_in_the_ways_of_all_commands(folder):
    put(folder, "a")
    asked = ("--size", "a=20Gi")
    table, wide = (plan(folder, *asked, "-o", view) for view in ("table", "wide"))
    assert table.stdout == wide.stdout == plan(folder, *asked).stdout
    documents = (plan(folder, *asked, "-o", view).stdout for view in ("json", "yaml"))
    first, second = (yaml.safe_load(text) for text in documents)
    assert first == second


def test_a_size_of_what_is_not_there_is_no_size_of_anything(folder):
    put(folder, "a")
    done = plan(folder, "--size", "a=20Gi", "--size", "aa=1Gi")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: --size: there is no ModelVersion 'aa' to give a size to\n",
    )


@pytest.mark.parametrize("items", ["[1]", "1", "{a: b}"])
def test_a_list_of_what_are_no_manifests_is_said_in_one_line(folder, items):
    (folder / "manifests" / "a.yaml").write_text(f"kind: List\nitems: {items}\n")
    done = plan(folder)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")


def test_a_manifest_that_the_api_would_refuse_is_named(folder):
    (folder / "manifests" / "a.yaml").write_text(
        "kind: ModelCache\nmetadata: {name: a}\nspec: {}\n"
    )
    done = plan(folder)
    assert done.exit_code == 2
    assert "ModelCache default/a is not what the API takes" in done.stderr


CANARY = """
apiVersion: modelcache.io/v1alpha1
kind: ModelCache
metadata: {{name: a, namespace: search}}
spec:
  stable: {{modelVersion: a}}
  canary: {{modelVersion: b, weight: 50}}
  tier: {tier}
  placement: {{copies: 2, nodeSelector: {{pool: gpu}}}}
---
"""
QUOTA = """
apiVersion: modelcache.io/v1alpha1
kind: ModelCacheQuota
metadata: {{name: q1, namespace: search}}
spec: {{hard: {{disk: {disk}}}, allNodes: true}}
---
"""


def put_rollout(folder, tier="Disk", quota=""):
    text = VERSION.format(name="a", model="m") + VERSION.format(name="b", model="m")
    (folder / "manifests" / "a.yaml").write_text(text + CANARY.format(tier=tier) + quota)


def test_a_rollout_is_told_with_its_extra_bytes_before_it_starts(folder):
    put_rollout(folder)
    sizes = ("--size", "a=20Gi", "--size", "b=30Gi")
    done = plan(folder, *sizes)
    assert done.exit_code == 0, done.output
    assert "rollout: search/a: canary b takes 2 x 30Gi = 60Gi beside a" in done.stdout
    found = json.loads(plan(folder, *sizes, "-o", "json").stdout)
    assert found["modelCaches"][0]["canary"]["extraBytes"] >> 30 == 60
    assert sorted(node["bookedBytes"] >> 30 for node in found["nodes"]) == [0, 50, 50]
    assert found["storage"]["entries"] == 2
    tight = plan(folder, "--size", "a=60Gi", "--size", "b=60Gi")
    assert tight.exit_code == 1
    assert "refused: search/a, canary b: CanaryDoesNotFit" in tight.stdout
    assert "2 x 60Gi = 120Gi" in tight.stdout


@pytest.mark.parametrize(("tier", "key"), [("Host", "host"), ("GPU", "gpu")])
def test_the_tier_is_placed_where_the_nodes_have_it(folder, tier, key):
    put(folder, "a", copies=2)
    file = folder / "manifests" / "a.yaml"
    file.write_text(file.read_text().replace("spec:\n  stable", f"spec:\n  tier: {tier}\n  stable"))
    done = plan(folder, "--size", "a=20Gi")
    assert done.exit_code == 1
    assert (
        f"refused: search/a: NoEligibleNode: 0 of 2 copies have a node in tier {tier}"
        in done.stdout
    )
    (folder / "nodes.yaml").write_text(NODES.replace("disk: 100Gi", f"disk: 100Gi, {key}: 22Gi"))
    done = plan(folder, "--size", "a=20Gi", "--headroom", "0", "-o", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["tiers"]] == ["Disk", tier]
    assert found["tiers"][1]["bookedBytes"] >> 30 == 40
    assert (
        f"tier {tier}: 20Gi of 22Gi leaves less than 20% more"
        in plan(folder, "--size", "a=20Gi").stdout
    )


def test_what_a_quota_would_refuse_is_told_with_what_is_charged(folder):
    put_rollout(folder, quota=QUOTA.format(disk="50Gi"))
    sizes = ("--size", "a=20Gi", "--size", "b=20Gi")
    done = plan(folder, *sizes)
    assert done.exit_code == 1
    assert "refused: search/a, canary b: QuotaExceeded: 2 copies need 20Gi each" in done.stdout
    assert "quota: search: 40Gi of 50Gi of disk" in done.stdout
    put_rollout(folder, quota=QUOTA.format(disk="80Gi"))
    found = json.loads(plan(folder, *sizes, "-o", "json").stdout)
    assert found["fits"]
    assert {
        "namespace": "search",
        "item": "disk",
        "usedBytes": 80 << 30,
        "hardBytes": 80 << 30,
    } in (found["quotas"])


def test_the_default_quota_of_the_chart_is_that_of_namespaces_without_one(folder):
    put(folder, "a", copies='"All"')
    assert plan(folder, "--size", "a=1Gi").exit_code == 0
    (folder / "default.yaml").write_text('{hard: {disk: "", pinned: "0"}, allNodes: false}')
    given = ("--size", "a=1Gi", "--default-quota", str(folder / "default.yaml"))
    done = plan(folder, *given)
    assert done.exit_code == 1
    assert "QuotaExceeded: copies: All is not granted by the default quota" in done.stdout
    (folder / "default.yaml").write_text("{hard: {disc: 1Gi}}")
    done = plan(folder, *given)
    assert (done.exit_code, "a quota has no disc" in done.stderr) == (2, True)
