"""Single pods may have grants: one value opens the operator's door, and the way to it."""

from __future__ import annotations

import pytest

from fakes.helm import pick, pod_of, render
from modelcache_operator.config import load_config

ON = {"grants": {"forPods": True}}


def operator_config(values):
    pod = pod_of(pick(render(values), "Deployment", "modelcache-operator"))
    given = [one for one in pod["containers"][0]["args"] if "/etc/modelcache/" not in one]
    return load_config(given, {}, hostname="x")


def who_may_ask(values):
    policy = pick(render(values), "NetworkPolicy", "modelcache-operator")
    (rule,) = [one for one in policy["spec"]["ingress"] if one["ports"] == [{"port": 8443}]]
    return rule["from"]


@pytest.mark.parametrize(("values", "is_open"), [({}, False), (ON, True)], ids=["default", "on"])
def test_the_operator_is_told(values, is_open):
    assert operator_config(values).grants_for_pods is is_open


def test_by_default_agents_alone_reach_the_port():
    (agents,) = who_may_ask({})
    assert agents["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "agent"
    assert "namespaceSelector" not in agents


def test_switched_on_pods_of_every_namespace_do():
    agents, everybody = who_may_ask(ON)
    assert "podSelector" in agents
    assert everybody == {"namespaceSelector": {}}
