"""Limits of the fleet: what the values say is what the operator reads."""

from __future__ import annotations

import re

import pytest
import yaml

from fakes.helm import HelmError, pick, render
from modelcache_operator.decide.fleet_limits import (
    ScopeKind,
    ScopeName,
    list_scopes,
    parse_fleet_limits,
)

LIMITS = {
    "renewInterval": "20s",
    "sources": [{"prefix": "s3://models/", "maxBandwidth": "2Gi", "maxNodes": 20}],
    "namespaces": {"search": {"maxNodes": 10}},
}


def read(values):
    text = pick(render(values), "ConfigMap", "modelcache-limits")["data"]["limits.yaml"]
    return parse_fleet_limits(yaml.safe_load(text))


def test_the_operator_reads_what_the_values_say():
    limits = read({"limits": LIMITS})
    scopes = list_scopes(limits)
    models = scopes[ScopeName(ScopeKind.SOURCE, "s3://models/")]
    assert (models.bytes_per_second, models.max_nodes) == (2 << 30, 20)
    search = scopes[ScopeName(ScopeKind.NAMESPACE, "search")]
    assert (search.bytes_per_second, search.max_nodes) == (None, 10)
    assert limits.lease_seconds == 80


def test_nothing_is_bounded_by_default():
    limits = read({})
    assert list_scopes(limits) == {}
    assert limits.renew_interval == 10


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        pytest.param({"sources": [{"prefix": "s3://m/"}]}, "sources/0", id="bounds nothing"),
        pytest.param({"sources": [{"maxNodes": 1, "x": 1}]}, "'x' not allowed", id="a typo"),
        pytest.param({"sources": [{"maxNodes": 1, "maxBandwidth": "1Gi"}]}, "prefix", id="of what"),
        pytest.param({"namespaces": {"a": {"maxNodes": 0}}}, "maxNodes", id="nobody at all"),
        pytest.param({"namespaces": {"a": {"maxBandwidth": "1Gbit"}}}, "maxBandwidth", id="bits"),
        pytest.param({"renewInterval": "often"}, "renewInterval", id="no time"),
    ],
)
def test_refused_with_the_place_in_the_message(limits, message):
    with pytest.raises(HelmError) as refusal:
        render({"limits": limits})
    assert re.search(message, str(refusal.value), re.DOTALL), refusal.value
