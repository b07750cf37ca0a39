"""Rules and dashboard on a real Prometheus that reads a running system."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator

import pytest

from fakes.played_kubelet import Pod
from fakes.volume_world import PlayedPods
from fakes.world import World
from modelcache_chart.dashboard import read_rows
from modelcache_operator.adapters.prometheus import PrometheusServer
from modelcache_testbed.command_line import run_command
from modelcache_testbed.dashboard_picture import Span, draw_dashboard
from modelcache_testbed.folders import state_folder
from modelcache_testbed.ports import PortLedger
from modelcache_testbed.prometheus import ALERTS, Prometheus, Target
from modelcache_testbed.system import System

pytestmark = pytest.mark.cluster

QUERIES = [
    pytest.param(query, id=f"{panel.title}: {legend}")
    for row in read_rows()
    for panel in row.panels
    for legend, query in panel.queries.items()
]
# What a system that cached one model and attached one pod cannot have.
EMPTY = {
    "Pods on warm nodes: warm",  # the played kubelet's pods are no objects
    "Time to load into memory or onto a card: P50 {{tier}}",
    "Time to load into memory or onto a card: P99 {{tier}}",
    "Host memory: {{kind}}",
    "Memory of cards: {{kind}}",
    "Traffic of canaries: {{namespace}}/{{name}}",
    "Age of what gives way: P50 {{tier}}",
    "Age of what gives way: P99 {{tier}}",
}
# What is there for a moment, which a scrape meets or not.
BY_CHANCE = {"Why entries are not cached: {{reason}}"}


QUOTA = {
    "apiVersion": "modelcache.io/v1alpha1",
    "kind": "ModelCacheQuota",
    "spec": {"hard": {"disk": "1Gi"}},
}


@pytest.fixture(scope="module")
def world(cluster, seaweed, tmp_path_factory) -> Iterator[World]:
    """One operator and two agents, with their ports of metrics open."""
    system = System(cluster, tmp_path_factory.mktemp("monitoring"))
    system.install()
    system.add_operator(extra=("--lease-list-interval=1s",))
    world = World(cluster, seaweed, system, "monitoring")
    try:
        yield world
    finally:
        world.close()


@pytest.fixture(scope="module")
def prometheus(world: World, tmp_path_factory) -> Iterator[Prometheus]:
    """It reads the operator and both agents from before the first model is wanted."""
    folder = tmp_path_factory.mktemp("prometheus")
    ledger = PortLedger(state_folder() / "ports.json")
    nodes = [world.add_node(suffix, agent=False) for suffix in ("n1", "n2")]
    (folder / "agents").mkdir()
    ports = ledger.reserve(nodes, folder / "agents")
    targets = [Target("operator", world.system.operator_http_port)]
    for node in nodes:
        world.system.add_agent(node, extra=(f"--metrics-port={ports[node]}",))
        targets.append(Target("agent", ports[node], node))
    server = Prometheus(folder / "server")
    try:
        server.start(targets, [ALERTS])
        yield server
    finally:
        server.stop()
        ledger.release(folder / "agents")


@pytest.fixture(scope="module")
def filled(world: World, prometheus: Prometheus, tmp_path_factory) -> Prometheus:
    """One model on both nodes, and a pod on one of them that found it there."""
    namespace = world.add_namespace("team")
    world.put_model("m/v1", seed=1)
    world.apply_version(namespace, "m-v1", "m/v1")
    world.cluster.apply([{**QUOTA, "metadata": {"name": "team", "namespace": namespace}}])
    world.apply_cache(namespace, "m", "m-v1", copies=2)
    world.wait_ready(namespace, "m", copies=2)
    pods = PlayedPods(world.system.store_of(world.nodes[0]), tmp_path_factory.mktemp("kubelet"))
    volume = pods.add(Pod(namespace=namespace, cache="m"))
    world.wait(lambda: volume.is_ready, "the pod's volume")
    hits = 'sum(modelcache_agent_attaches_total{tier="disk", result="hit"} offset 3s)'
    world.wait(lambda: prometheus.ask_number(hits) == 1, "the hit, a while ago, in Prometheus")
    return prometheus


def test_every_target_is_read(filled):
    for target in filled.list_targets():
        assert (target["health"], target["lastError"]) == ("up", "")


def test_series_keep_the_names_of_objects_and_nodes(filled, world):
    (ready,) = filled.ask("modelcache_cache_ready == 1")
    assert ready["metric"]["namespace"] == f"{world.name}-team"
    assert ready["metric"]["name"] == "m"
    nodes = {sample["metric"]["node"] for sample in filled.ask("modelcache_agent_node_labels")}
    assert nodes == set(world.nodes)


@pytest.mark.parametrize("query", QUERIES)
def test_prometheus_understands_each_query_of_the_dashboard(filled, query):
    for sample in filled.ask(Span(0, 600).settle(query)):
        assert sample["value"]


def test_a_used_system_answers_every_query_but_those_of_what_did_not_happen(filled, tmp_path):
    picture = tmp_path / "dashboard.png"
    empty = draw_dashboard(filled, Span(filled.started_at, time.time()), picture)
    assert set(empty) - BY_CHANCE == EMPTY
    assert picture.stat().st_size > 100_000


def test_requests_to_the_api_server_are_told_by_verb_of_agents_and_operator(filled):
    for program in ("agent", "operator"):
        name = f"modelcache_{program}_api_requests_total"
        verbs = {sample["metric"]["verb"] for sample in filled.ask(f"sum by (verb) ({name})")}
        assert {"list", "watch", "apply"} <= verbs, program


def test_the_gate_of_rollouts_gets_its_number(filled):
    query = 'sum(modelcache_agent_attaches_total{tier="disk", result="hit"})'
    assert asyncio.run(PrometheusServer(filled.url).ask(query)) == 1.0


def test_the_checklist_finds_every_agent_in_prometheus(filled, world):
    words = ("checklist", "-ojson", f"--prometheus={filled.url}")
    result = run_command(world.cluster.kubeconfig, *words)
    checks = {one["check"]: one for one in json.loads(result.stdout)["checks"]}
    told = f"it has metrics of {len(world.nodes)} agents"
    assert (checks["metrics"]["outcome"], checks["metrics"]["told"]) == ("Pass", told)


def test_what_was_measured_is_what_happened(filled, world):
    fetched = filled.ask_number("sum(modelcache_agent_fetch_verified_bytes_total)")
    size = world.version(f"{world.name}-team", "m-v1")["status"]["sizeBytes"]
    assert fetched == 2 * size
    assert filled.ask_number('sum(modelcache_agent_load_seconds_count{tier="disk"})') == 2
    assert filled.ask_number("sum(modelcache_agent_label_seconds_count)") == 2
    assert filled.ask_number('sum(modelcache_agent_attach_seconds_count{result="hit"})') == 1
    assert filled.ask_number("sum(modelcache_agent_evictions_total)") == 0


def test_rules_are_evaluated_without_an_error_and_nothing_fires_on_a_healthy_system(filled, world):
    world.wait(
        lambda: all(rule["health"] == "ok" for rule in filled.list_rules()), "the rules to run"
    )
    rules = filled.list_rules()
    wanted = re.findall(r"alert: (\w+)", ALERTS.read_text())
    assert sorted(rule["name"] for rule in rules) == sorted(wanted)
    own = f"{world.name}-team"
    # The operator also tells of what other tests have left on the control plane.
    raised = [
        rule["name"]
        for rule in rules
        for alert in rule["alerts"]
        if alert["labels"].get("namespace", own) == own
    ]
    assert raised == []


def test_certificates_are_told_by_operator_and_agents(filled):
    expiry = "modelcache_operator_certificate_expiry_timestamp_seconds - time()"
    found = {sample["metric"]["certificate"] for sample in filled.ask(f"{expiry} > 86400")}
    assert found == {"serving", "authority"}
    agents = "modelcache_agent_certificate_expiry_timestamp_seconds - time() > 300"
    assert len(filled.ask(agents)) == 2


def test_C44_the_series_of_a_deleted_model_cache_vanish(filled, world):
    """Last of all: it takes the model away."""
    own = f"{world.name}-team"
    world.cluster.kubectl("delete", "modelcache", "m", f"--namespace={own}")
    ready = f'modelcache_cache_ready{{namespace="{own}"}}'
    for series in (ready, "modelcache_agent_fetch_egress_bytes_total"):
        world.wait(lambda series=series: not filled.ask(series), f"the end of {series}")
