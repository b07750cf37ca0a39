"""Agents that read from each other: one value switches all of it."""

from __future__ import annotations

import yaml

from fakes.helm import pick, pod_of, render
from modelcache_agent.config import parse_config
from modelcache_operator.config import load_config

ON = {"peers": {"enabled": True, "port": 9500, "bandwidth": "200Mi", "serves": 4}}


def agent(values):
    pod = pod_of(pick(render(values), "DaemonSet", "modelcache-agent-default"))
    return next(item for item in pod["containers"] if item["name"] == "agent")


def operator_arguments(values, tmp_path):
    pod = pod_of(pick(render(values), "Deployment", "modelcache-operator"))
    empty = tmp_path / "empty.yaml"
    empty.touch()
    return [
        f"{argument.partition('=')[0]}={empty}" if "=/etc/modelcache/" in argument else argument
        for argument in pod["containers"][0]["args"]
    ]


def parse_agent(values):
    given = [
        argument.replace("$(NODE_NAME)", "n1").replace("$(POD_IP)", "10.1.2.3")
        for argument in agent(values)["args"]
    ]
    return parse_config(given, {})


def test_it_is_on_unless_it_is_switched_off():
    assert parse_agent({}).peers
    assert not parse_agent({"peers": {"enabled": False}}).peers


def test_agents_serve_at_their_pod_s_address_within_the_bounds():
    config = parse_agent(ON)
    assert config.peers
    assert config.peer_address == "10.1.2.3"
    assert (config.peer_port, config.peer_bandwidth, config.peer_serves) == (9500, 200 << 20, 4)
    env = {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in agent(ON)["env"]}
    assert env["POD_IP"] == "status.podIP"
    assert {"name": "peers", "containerPort": 9500} in agent(ON)["ports"]


def test_the_operator_grants_it_and_knows_what_near_means(tmp_path):
    values = {"peers": {"enabled": True, "topology": ["example.com/rack", "example.com/zone"]}}
    config = load_config(operator_arguments(values, tmp_path), {}, hostname="x")
    assert config.peers
    assert config.peer_topology == ("example.com/rack", "example.com/zone")


def test_switched_off_nothing_of_it_is_there(tmp_path):
    off = {"peers": {"enabled": False}}
    assert not parse_agent(off).peers
    assert not load_config(operator_arguments(off, tmp_path), {}, hostname="x").peers
    documents = render(off)
    text = yaml.safe_dump_all(documents)
    assert "9405" not in text
    assert "POD_IP" not in text


def test_network_policies_let_agents_reach_agents_and_nobody_else():
    sources = [{"ipBlock": {"cidr": "10.9.0.0/16"}}]
    policy = pick(
        render(ON | {"networkPolicy": {"sources": sources}}), "NetworkPolicy", "modelcache-agent"
    )
    agents = pod_of(pick(render(ON), "DaemonSet", "modelcache-agent-default"))
    assert agents["containers"]
    (allowed,) = [rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": 9500}]]
    (peer,) = allowed["from"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "agent"
    assert [
        rule["to"] for rule in policy["spec"]["egress"] if rule.get("ports") == [{"port": 9500}]
    ]
