"""The administrator's limits, from the file."""

from __future__ import annotations

import pytest

from modelcache_operator.decide.fleet_limits import (
    FleetLimits,
    ScopeKind,
    ScopeName,
    find_scopes,
    list_scopes,
    parse_fleet_limits,
)


def test_an_empty_file_bounds_nothing():
    assert parse_fleet_limits(None) == FleetLimits()
    assert list_scopes(FleetLimits()) == {}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param([], "FleetLimits", id="a list"),
        pytest.param({"source": []}, "source", id="a misspelt section"),
        pytest.param({"sources": [{"prefix": "s3://a/"}]}, "maxBandwidth or maxNodes", id="none"),
        pytest.param(
            {"namespaces": {"a": {"maxBandwidth": "1Ki"}}}, "65536", id="slower than stores bear"
        ),
        pytest.param({"namespaces": {"a": {"maxBandwidth": "fast"}}}, "fast", id="no quantity"),
        pytest.param({"namespaces": {"a": {"maxNodes": 0}}}, "maxNodes", id="nobody"),
        pytest.param({"renewInterval": "1h"}, "renewInterval", id="too seldom"),
        pytest.param(
            {"sources": [{"prefix": "s3://a/", "maxNodes": n} for n in (1, 2)]}, "two", id="twice"
        ),
    ],
)
def test_a_mistake_is_refused_as_a_whole(document, message):
    with pytest.raises(ValueError, match=message):
        parse_fleet_limits(document)


def test_every_limit_that_covers_a_version_holds():
    limits = parse_fleet_limits(
        {
            "sources": [
                {"prefix": prefix, "maxNodes": 1} for prefix in ("s3://a/", "s3://a/b", "hf://org")
            ],
            "namespaces": {"search": {"maxBandwidth": "1Mi"}},
        }
    )

    def names(namespace, uri):
        return [scope.name for scope in find_scopes(limits, namespace, uri)]

    assert names("search", "s3://a/b/c") == ["s3://a/", "s3://a/b", "search"]
    assert names("other", "s3://a/bc") == ["s3://a/"]
    assert names("other", "hf://org/model@main") == ["hf://org"]
    assert find_scopes(limits, "other", "s3://c/d") == ()
    assert find_scopes(limits, "search", "s3://c/d") == (ScopeName(ScopeKind.NAMESPACE, "search"),)
