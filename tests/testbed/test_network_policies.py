"""The stand-in for a network plug-in: exactly what the chart's policies say, or nothing."""

from __future__ import annotations

import pytest

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.real_nodes.network_policies import make_rules

AGENT = {"matchLabels": {"part": "agent"}}
PODS = [
    {"metadata": {"labels": {"part": part}}, "status": {"podIP": address}}
    for part, address in (("agent", "10.0.0.1"), ("agent", "10.0.0.2"), ("other", "10.0.0.3"))
] + [{"metadata": {"labels": {"part": "agent"}}, "status": {}}]


def policy(*ingress):
    return {"spec": {"podSelector": AGENT, "ingress": list(ingress)}}


def rule(peer, **port):
    return {"from": [peer], "ports": [{"port": 9405, "protocol": "TCP", **port}]}


def test_selected_pods_take_what_a_rule_allows_and_nothing_else():
    text = make_rules([policy(rule({"podSelector": AGENT}))], PODS)
    lines = [line.strip() for line in text.splitlines() if "daddr" in line]
    assert lines == [
        "ip daddr 10.0.0.1 ip saddr { 10.0.0.1, 10.0.0.2 } tcp dport 9405 accept",
        "ip daddr 10.0.0.1 drop",
        "ip daddr 10.0.0.2 ip saddr { 10.0.0.1, 10.0.0.2 } tcp dport 9405 accept",
        "ip daddr 10.0.0.2 drop",
    ]


def test_a_closed_port_is_closed_to_connections_that_are_open_already_as_well():
    text = make_rules([policy(rule({"podSelector": AGENT}))], PODS, closed=9405)
    assert text.index("tcp dport 9405 drop") < text.index("established")


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(rule({"ipBlock": {"cidr": "10.0.0.0/8"}}), id="an address"),
        pytest.param(rule({"namespaceSelector": {"matchLabels": {"a": "b"}}}), id="a namespace"),
        pytest.param(rule({"podSelector": {"matchExpressions": []}}), id="an expression"),
        pytest.param(rule({"podSelector": AGENT}, endPort=9410), id="a range of ports"),
        pytest.param(rule({"podSelector": AGENT}, protocol="UDP"), id="another protocol"),
    ],
)
def test_what_it_does_not_know_is_refused_rather_than_guessed(odd):
    with pytest.raises(TestbedError, match="does not know"):
        make_rules([policy(odd)], PODS)
