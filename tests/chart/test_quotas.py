"""The default quota: what the values say is what the operator reads; who may write quotas."""

from __future__ import annotations

import re

import pytest
import yaml

from fakes.helm import HelmError, pick, render
from modelcache_api.names import Priority
from modelcache_operator.decide.quota import Item, parse_default_quota


def read(values):
    data = pick(render(values), "ConfigMap", "modelcache-limits")["data"]
    return parse_default_quota(yaml.safe_load(data["default-quota.yaml"]))


def test_by_default_bytes_have_no_limit_and_what_needs_a_quota_is_not_granted():
    limits = read({})
    assert limits.hard == {Item.PINNED: 0}
    assert (limits.max_priority, limits.all_nodes) == (Priority.NORMAL, False)


def test_the_operator_reads_what_the_values_say():
    limits = read({"quotas": {"default": {"hard": {"disk": "10Ti"}, "allNodes": True}}})
    assert limits.hard == {Item.DISK: 10 << 40, Item.PINNED: 0}
    assert limits.all_nodes


def test_the_operator_is_told_where_it_is():
    deployment = pick(render({}), "Deployment", "modelcache-operator")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--default-quota=/etc/modelcache/limits/default-quota.yaml" in arguments


def test_who_may_edit_in_a_namespace_reads_its_quota_and_cannot_write_it():
    documents = render({})
    rules = {
        name: pick(documents, "ClusterRole", name)["rules"][0]["resources"]
        for name in ("modelcache-view", "modelcache-edit")
    }
    assert "modelcachequotas" in rules["modelcache-view"]
    assert "modelcachequotas" not in rules["modelcache-edit"]


@pytest.mark.parametrize(
    ("default", "message"),
    [
        pytest.param({"hard": {"disk": "1 TB"}}, "disk", id="no quantity"),
        pytest.param({"hard": {"disc": "1Ti"}}, "disc", id="a typo"),
        pytest.param({"maxPriority": "Urgent"}, "maxPriority", id="no priority"),
    ],
)
def test_refused_with_the_place_in_the_message(default, message):
    with pytest.raises(HelmError) as refusal:
        render({"quotas": {"default": default}})
    assert re.search(message, str(refusal.value), re.DOTALL), refusal.value
