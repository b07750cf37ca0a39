"""`kubectl modelcache` on a real API server, with operator, agents and store."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.world import API, World
from modelcache_testbed.command_line import ask_command
from modelcache_testbed.system import NAMESPACE

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def team(world: World) -> str:
    """A namespace whose ModelCache `m` has a verified copy on both nodes."""
    namespace = world.add_namespace("team")
    world.put_model("m")
    world.apply_version(namespace, "m", "m")
    world.apply_cache(namespace, "m", "m", copies=2)
    world.wait_ready(namespace, "m", copies=2)
    world.wait(lambda: world.warm_nodes(namespace, "m") == set(world.nodes), "labels of both")
    return namespace


def ask(world: World, *words: str, fails: bool = False) -> str:
    """What the command says."""
    return ask_command(world.cluster.kubeconfig, *words, fails=fails)


def entry(world: World, node: str) -> dict:
    """What the node's agent says of the one version that it holds."""
    (found,) = world.entries(node).values()
    return found


def test_status_and_top_count_what_is_there(world: World, team: str) -> None:
    page = json.loads(ask(world, "status", "-n", team, "-ojson"))
    assert page["nodes"]["ready"] >= 2
    (cache,) = page["modelCaches"]
    assert (cache["name"], cache["copiesReady"], cache["ready"]) == ("m", 2, True)
    (disk,) = [tier for tier in page["tiers"] if tier["name"] == "Disk"]
    # Its two equal files lie on a disk once.
    assert 0.99 < disk["usedBytes"] / (2 * cache["sizeBytes"]) <= 1
    (model,) = json.loads(ask(world, "top", "models", "-n", team, "-ojson"))["models"]
    assert (model["nodes"]["Disk"], model["sizeBytes"]) == (2, cache["sizeBytes"])
    told = {node["name"]: node for node in json.loads(ask(world, "top", "-ojson"))["nodes"]}
    assert all(told[node]["models"] == 1 for node in world.nodes)
    assert team in ask(world, "status", "-A")


def test_a_copy_goes_when_it_is_asked_to_and_stays_gone(world: World, team: str) -> None:
    first, second = sorted(world.nodes)
    ask(world, "pin", "m", "-n", team)
    world.wait(lambda: is_marked(world, first, "pinned"), "the entry being pinned")
    assert "a ModelCache pins" in ask(world, "evict", "m", "-n", team, "--node", first, fails=True)
    ask(world, "pin", "m", "--off", "-n", team)
    # One of the two may go: minReady is 1, and which one is the operator's choice.
    world.wait(
        lambda: is_marked(world, first, "evictable") is not is_marked(world, second, "evictable"),
        "one entry being evictable",
    )
    is_first = is_marked(world, first, "evictable")
    gone, kept = (first, second) if is_first else (second, first)
    refused = ask(world, "evict", "m", "-n", team, "--node", kept, fails=True)
    assert f"those on {gone} may go" in refused
    said = ask(world, "evict", "m", "-n", team, "--node", gone)
    assert said == f"node {gone}: evicted; it comes back when a pod asks\n"
    # Without a wait: once the command says so, label and bytes are gone, and nobody asks any more.
    assert world.warm_nodes(team, "m") == {kept}
    assert not world.trees(gone)
    world.wait_gone(gone)
    annotations = (world.cache_node(gone) or {})["metadata"].get("annotations") or {}
    assert not [name for name in annotations if name.startswith("evict.")]
    assert world.stays(lambda: entry(world, gone)["state"] == "Evicted", 3)
    refused = ask(world, "evict", "m", "-n", team, "--node", kept, fails=True)
    assert "no copy of it may go now" in refused
    spec = world.cache(team, "m")["spec"]
    assert spec["retention"] == "Cached"


def is_marked(world: World, node: str, field: str) -> bool:
    found = world.cache_node(node) or {"spec": {}}
    return any(spec.get(field) for spec in found["spec"].get("entries") or ())


def test_what_people_annotate_outlives_the_operators_applies(world: World, team: str) -> None:
    node = world.nodes[0]
    world.cluster.kubectl("annotate", "cachenode", node, "note=mine")
    ask(world, "pin", "m", "-n", team)
    world.wait(lambda: is_marked(world, node, "pinned"), "the entry being pinned")
    found = world.cache_node(node) or {}
    assert found["metadata"]["annotations"]["note"] == "mine"


def test_a_checklist_passes_what_is_right_and_takes_its_test_model_away(
    world: World, team: str
) -> None:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "modelcache_cli", "checklist", "-ojson", "-n", team),
            f"--test-uri={world.uri('m')}",
            f"--test-endpoint={world.store.endpoint}",
            "--test-secret=models-s3",
        ],
        env=os.environ | {"KUBECONFIG": str(world.cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    checks = {one["check"]: one for one in json.loads(result.stdout)["checks"]}
    right = ("RBAC", "mount points", "capacity", "sources", "TLS", "clocks", "test model")
    assert {name: checks[name]["outcome"] for name in right} == dict.fromkeys(right, "Pass"), checks
    # The test bed runs programs, not pods, and has neither guards nor a CSI driver.
    assert [checks[name]["outcome"] for name in ("workloads", "admission", "CSI")] == ["Fail"] * 3
    assert (checks["metrics"]["outcome"], result.returncode) == ("Unknown", 1)
    for kind in ("modelcaches", "modelversions"):
        items = world.cluster.api.get(f"{API}/namespaces/{team}/{kind}")["items"]
        assert [item["metadata"]["name"] for item in items] == ["m"]


# Where people write what belongs into a Secret alone.
PLANTED = {
    "note": "https://ann:planted-password@store.example/m?X-Amz-Signature=plantedsignature",
    "HF_TOKEN": "planted-token",
    "header": "Authorization: Bearer plantedbearer",
}
WORDS = ("planted-password", "plantedsignature", "planted-token", "plantedbearer", "planted-data")


@pytest.fixture
def planted(world: World, team: str) -> Iterator[None]:
    """Secrets in a Secret, in annotations, and in the environment of a workload of the system."""
    world.cluster.kubectl(
        "annotate", "modelversion", "m", "-n", team, *(f"{k}={v}" for k, v in PLANTED.items())
    )
    labels = {"app.kubernetes.io/name": "modelcache", "planted": "yes"}
    metadata = {"name": "planted", "namespace": NAMESPACE, "labels": labels}
    environment = [{"name": name, "value": value} for name, value in PLANTED.items()]
    container = {"name": "main", "image": "none", "env": environment}
    container["args"] = ["--password=planted-password"]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    world.cluster.apply(
        [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "stringData": {"key": "planted-data"},
            },
        ]
    )
    yield
    world.cluster.kubectl("delete", "deployment,secret", "planted", "-n", NAMESPACE)


@pytest.mark.usefixtures("planted")
def test_a_bundle_has_the_objects_and_no_secret_of_anybody(
    world: World, team: str, tmp_path: Path
) -> None:
    out = tmp_path / "bundle.tar.gz"
    ask(world, "bundle", "--out", str(out), "-ojson")
    with tarfile.open(out) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    files = (path for path in folder.rglob("*") if path.is_file())
    texts = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    assert b"name: m\n" in texts["objects/modelversions.yaml"]
    assert world.nodes[0].encode() in texts["objects/cachenodes.yaml"]
    assert team.encode() in texts["objects/events.yaml"]
    assert b"name: planted\n" in texts["system/deployments.yaml"]
    whole = b"\n".join(texts.values())
    found = [
        word
        for word in (*WORDS, world.store.access_key, world.store.secret_key)
        for form in (word.encode(), base64.b64encode(word.encode()))
        if form in whole
    ]
    assert found == []
