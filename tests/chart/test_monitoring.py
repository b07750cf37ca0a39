"""Monitors, rules and dashboard: off by default, and what Prometheus and Grafana find of them."""

from __future__ import annotations

import json

import pytest
import yaml

from fakes.helm import CHART, HelmError, pick, pick_all, pod_of, render

ALL = {"monitors": True, "rules": True, "dashboard": True}
KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
FILES = CHART / "files" / "monitoring"


def monitoring(**values):
    return render({"monitoring": values})


def test_nothing_of_it_is_there_by_default():
    documents = render()
    assert not [item for item in documents if item["kind"] in KINDS]
    assert not pick_all(documents, "ConfigMap", "modelcache-dashboard")


@pytest.mark.parametrize("switch", ALL)
def test_each_switch_brings_its_own_part_alone(switch):
    documents = monitoring(**{switch: True})
    found = {item["kind"] for item in documents if item["kind"] in KINDS}
    expected = {"monitors": {"ServiceMonitor", "PodMonitor"}, "rules": {"PrometheusRule"}}
    assert found == expected.get(switch, set())
    dashboards = pick_all(documents, "ConfigMap", "modelcache-dashboard")
    assert len(dashboards) == (switch == "dashboard")


def test_the_service_monitor_selects_the_operators_service_and_keeps_its_namespaces():
    documents = monitoring(**ALL)
    monitor = pick(documents, "ServiceMonitor")
    service = pick(documents, "Service", "modelcache-operator")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["honorLabels"] is True
    others = [s for s in pick_all(documents, "Service") if s is not service]
    assert not [s for s in others if wanted.items() <= s["metadata"]["labels"].items()]


def test_the_pod_monitor_selects_agents_of_all_profiles_and_names_their_nodes():
    documents = monitoring(**ALL)
    monitor = pick(documents, "PodMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    for agents in pick_all(documents, "DaemonSet"):
        assert wanted.items() <= agents["spec"]["template"]["metadata"]["labels"].items()
        ports = {
            port["name"]
            for container in pod_of(agents)["containers"]
            for port in container.get("ports", ())
        }
        assert monitor["spec"]["podMetricsEndpoints"][0]["port"] in ports
    operator = pick(documents, "Deployment", "modelcache-operator")
    labels = operator["spec"]["template"]["metadata"]["labels"]
    assert not wanted.items() <= labels.items()
    (relabelling,) = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
    assert relabelling["targetLabel"] == "node"


def test_the_rules_are_those_of_the_file_but_for_a_runbook_without_an_address():
    rendered = pick(monitoring(rules=True), "PrometheusRule")["spec"]
    expected = yaml.safe_load((FILES / "alerts.yaml").read_text())
    for rule in expected["groups"][0]["rules"]:
        del rule["annotations"]["runbook_url"]
    assert rendered == expected


def rules_of(**values):
    documents = monitoring(rules=True, **values)
    return pick(documents, "PrometheusRule")["spec"]["groups"][0]["rules"]


def test_runbooks_lie_where_the_documents_are_served():
    for page in ("https://docs.example/runbooks/", "https://git.example/mc/docs/runbooks.md"):
        for rule in rules_of(runbooks=page):
            assert rule["annotations"]["runbook_url"] == f"{page}#{rule['alert'].lower()}"


def test_an_alert_can_be_left_out_and_a_misspelt_one_is_refused():
    left = {rule["alert"] for rule in rules_of(disabledAlerts=["ModelCacheHitRateLow"])}
    assert {rule["alert"] for rule in rules_of()} - left == {"ModelCacheHitRateLow"}
    with pytest.raises(HelmError, match=r"no alert ModelCacheHitRate; there are ModelCacheHitRate"):
        rules_of(disabledAlerts=["ModelCacheHitRate"])


def test_prometheus_finds_all_of_it_by_the_labels_that_are_given():
    documents = monitoring(**ALL, labels={"release": "kube-prometheus-stack"}, interval="15s")
    for kind in KINDS:
        labels = pick(documents, kind)["metadata"]["labels"]
        assert labels["release"] == "kube-prometheus-stack"
        assert labels["app.kubernetes.io/name"] == "modelcache"
    assert pick(documents, "ServiceMonitor")["spec"]["endpoints"][0]["interval"] == "15s"
    assert pick(documents, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["interval"] == "15s"


def test_the_dashboard_reaches_grafana_as_it_was_made():
    item = pick(monitoring(dashboard=True), "ConfigMap", "modelcache-dashboard")
    assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
    made = json.loads((FILES / "dashboard.json").read_text())
    assert json.loads(item["data"]["modelcache.json"]) == made


@pytest.mark.parametrize(
    ("values", "word"),
    [
        pytest.param({"interval": "often"}, "interval", id="no interval"),
        pytest.param({"runbooks": "docs"}, "runbooks", id="no address"),
        pytest.param({"runbooks": "https://docs#here"}, "runbooks", id="a place within a page"),
        pytest.param({"dashboards": True}, "dashboards", id="misspelt"),
    ],
)
def test_wrong_values_are_refused(values, word):
    with pytest.raises(HelmError, match=word):
        monitoring(**values)
