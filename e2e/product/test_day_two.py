"""What people on call run, on real nodes with the chart's guards and CSI driver."""

from __future__ import annotations

import json
import tarfile

import pytest

from modelcache_testbed import wait_until
from modelcache_testbed.command_line import ask_command
from modelcache_testbed.models import build_cache, build_version
from modelcache_testbed.product import OPERATORS, SYSTEM, TEAM
from modelcache_testbed.product_store import ENDPOINT

pytestmark = pytest.mark.nodes

# A version of its own, whose bytes no pod mounts.
SPARE = "spare"
URI = "s3://models/minilm/v2"
SECRETS = ("only-for-this-tutorial",)


def ask(product, *words):
    """What the command says."""
    return ask_command(product.cluster.kubeconfig, *words)


@pytest.fixture
def spare(product):
    product.cluster.apply(
        [build_version(TEAM, SPARE, URI, ENDPOINT), build_cache(TEAM, SPARE, SPARE, copies=2)]
    )
    ready = "--for=jsonpath={.status.copiesSummary}=2/2"
    where = (f"--namespace={TEAM}", f"modelcache/{SPARE}")
    product.cluster.kubectl("wait", *where, ready, "--timeout=120s")
    yield SPARE
    for kind in ("modelcache", "modelversion"):
        product.cluster.kubectl("delete", kind, f"--namespace={TEAM}", SPARE, "--timeout=60s")


def evictable(product, version):
    """Nodes whose copy the operator lets go."""
    path = f"/apis/modelcache.io/v1alpha1/namespaces/{TEAM}/modelversions/{version}"
    uid = product.cluster.api.get(path)["metadata"]["uid"]
    nodes = product.cluster.api.get("/apis/modelcache.io/v1alpha1/cachenodes")["items"]
    return [
        node["metadata"]["name"]
        for node in nodes
        for entry in node["spec"].get("entries", [])
        if entry["uid"] == uid and entry.get("evictable")
    ]


def test_every_probe_of_the_checklist_passes_but_for_metrics_that_nobody_scrapes(product):
    source = (f"--test-uri={URI}", f"--test-endpoint={ENDPOINT}", "--test-secret=models-s3")
    said = ask(product, "checklist", "-ojson", "-n", TEAM, *source)
    outcomes = {one["check"]: one["outcome"] for one in json.loads(said)["checks"]}
    assert outcomes.pop("metrics") == "Unknown"
    assert set(outcomes.values()) == {"Pass"}, said


def test_a_bundle_has_the_logs_of_real_pods_and_no_secret(product, tmp_path):
    out = tmp_path / "bundle.tar.gz"
    ask(product, "bundle", "--out", str(out))
    with tarfile.open(out) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    logs = {path.parent.name for path in (folder / "logs").rglob("*.log")}
    assert {pod["metadata"]["name"] for pod in product.pods(SYSTEM, OPERATORS)} <= logs
    nodes = {path.stem for path in (folder / "decisions").iterdir()}
    assert nodes == set(product.labels())
    texts = (path.read_text() for path in folder.rglob("*") if path.is_file())
    assert not [word for text in texts for word in SECRETS if word in text]


def test_a_copy_is_pinned_unpinned_and_evicted_as_administrator_through_the_guards(product, spare):
    wait_until(
        lambda: len(product.warm_nodes(version=spare)) == 2,
        seconds=60,
        what="labels of both copies",
    )
    holders = product.warm_nodes(version=spare)
    ask(product, "pin", spare, "-n", TEAM)
    ask(product, "pin", spare, "--off", "-n", TEAM)
    wait_until(
        lambda: len(evictable(product, spare)) == 1, seconds=60, what="one copy beyond minReady"
    )
    (gone,) = evictable(product, spare)
    said = ask(product, "evict", spare, "-n", TEAM, "--node", gone)
    assert said == f"node {gone}: evicted; it comes back when a pod asks\n"
    assert product.warm_nodes(version=spare) == holders - {gone}


def test_a_pod_that_reads_its_model_is_said_to_have_it(product):
    (first, *_) = product.pods(TEAM, "app=embed")
    said = ask(product, "why", "pod", first["metadata"]["name"], "-n", TEAM)
    assert ": Cached: " in said
