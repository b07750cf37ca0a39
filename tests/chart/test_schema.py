"""Values that are wrong are refused before anything is rendered, and the message says where."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from fakes.helm import CHART, HelmError, render, run_helm


def profile(name: str = "a", **more):
    return {"name": name, "nodeSelector": {"pool": name}, "disk": {"path": "/data"}} | more


def profiles(*items):
    return {"agent": {"profiles": list(items)}}


REFUSED = [
    pytest.param({"agnet": {}}, "'agnet' not allowed", id="a misspelt section"),
    pytest.param({"agent": {"toleration": []}}, "'toleration' not allowed", id="a misspelt key"),
    pytest.param(
        profiles(profile(disk={"path": "/data", "size": "1Ti"})),
        r"/agent/profiles/0/disk.*'size' not allowed",
        id="an unknown key inside of a profile",
    ),
    pytest.param(profiles(), "/agent/profiles", id="no profile at all"),
    pytest.param(
        profiles({"name": "a", "nodeSelector": {}}), "missing property 'disk'", id="no disk"
    ),
    pytest.param(
        profiles(profile(disk={"path": "data"})), "/disk/path", id="a path that is not absolute"
    ),
    pytest.param(profiles(profile(name="A_b")), "/name", id="a profile that is no part of a name"),
    pytest.param(
        profiles(profile(disk={"path": "/d", "capacity": "five"})), "/capacity", id="no quantity"
    ),
    pytest.param(
        profiles(profile(disk={"path": "/d", "highWatermark": 101})),
        "/highWatermark",
        id="over full",
    ),
    pytest.param(
        profiles(profile(disk={"path": "/d", "lowWatermark": 80})),
        "lowWatermark 80, which is not below its highWatermark 80",
        id="watermarks the wrong way round",
    ),
    pytest.param(
        profiles(profile(disk={"path": "/d", "policy": "random"})),
        "/policy",
        id="a policy of chance",
    ),
    pytest.param(
        profiles(profile(gpu={"capacity": "1Gi", "device": "cpu"})), "/gpu/device", id="no device"
    ),
    pytest.param(
        profiles(profile(gpu={"capacity": "one"})), "/gpu/capacity", id="no quantity of a card"
    ),
    pytest.param(
        profiles(profile(host={"capacity": "64 GB"})), "/host/capacity", id="no quantity of memory"
    ),
    pytest.param(
        profiles(profile(host={"size": "64Gi"})), "'size' not allowed", id="an unknown key of host"
    ),
    pytest.param(
        profiles(profile(fetch={"streams": 1000})), "/streams", id="more streams than may be"
    ),
    pytest.param(
        profiles(profile(fetch={"maxBandwidth": "1Gbit"})), "/maxBandwidth", id="no rate in bytes"
    ),
    pytest.param(
        profiles(profile(scrub={"interval": "weekly"})), "/interval", id="no interval of a scrub"
    ),
    pytest.param(
        {"operator": {"image": {"digest": "latest"}}}, "/digest", id="a digest that is none"
    ),
    pytest.param({"operator": {"replicas": 0}}, "want 1", id="no replica"),
    pytest.param({"operator": {"replicas": "two"}}, "want integer", id="a word for a number"),
    pytest.param({"operator": {"logLevel": "loud"}}, "/logLevel", id="an unknown level"),
    pytest.param(
        {"operator": {"authority": {"overlap": "1 day"}}}, "/overlap", id="an unknown unit"
    ),
    pytest.param({"sourcePolicy": [{"uris": ["s3://"]}]}, "'uris' not allowed", id="a rule's typo"),
    pytest.param({"image": {"pullPolicy": "Sometimes"}}, "/pullPolicy", id="an unknown policy"),
    pytest.param({"namespace": {"podSecurity": "none"}}, "/podSecurity", id="an unknown level of"),
    pytest.param({"guards": {"exemptGroups": ["a'b"]}}, "/exemptGroups", id="a quote in a name"),
    pytest.param({"uninstall": {"timeoutSeconds": 1}}, "/timeoutSeconds", id="a hasty clean-up"),
    pytest.param({"agent": {"maxUnavailable": "some"}}, "/maxUnavailable", id="not a percentage"),
]
APART = [
    pytest.param(
        profile("a"), profile("a"), 'two profiles are named "a"', id="two of the same name"
    ),
    pytest.param(
        profile("a", nodeSelector={}), profile("b"), 'both "a" and "b"', id="one that takes all"
    ),
    pytest.param(
        profile("a", nodeSelector={"disk": "fast"}),
        profile("b"),
        "give one key of nodeSelector another value",
        id="different keys",
    ),
    pytest.param(
        profile("a", nodeSelector={"pool": "x"}),
        profile("b", nodeSelector={"pool": "x", "zone": "1"}),
        'both "a" and "b"',
        id="one inside of the other",
    ),
    pytest.param(
        profile("a", nodeSelector={}, excludeNodes={"pool": ["c"]}),
        profile("b"),
        'both "a" and "b"',
        id="one that excludes something else",
    ),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_refused_with_the_place_in_the_message(values, message):
    with pytest.raises(HelmError) as refusal:
        render(values)
    assert re.search(message, str(refusal.value), re.DOTALL), refusal.value


@pytest.mark.parametrize(("one", "other", "message"), APART)
def test_profiles_that_could_meet_on_a_node_are_refused(one, other, message):
    with pytest.raises(HelmError) as refusal:
        render(profiles(one, other))
    assert message in str(refusal.value)


def test_profiles_apart_by_value_and_by_exclusion_are_taken():
    rest = profile("rest", nodeSelector={}, excludeNodes={"pool": ["a", "b"]})
    found = render(profiles(profile("a"), profile("b"), rest))
    names = {item["metadata"]["name"] for item in found if item["kind"] == "DaemonSet"}
    assert names == {f"modelcache-agent-{name}" for name in ("a", "b", "rest")}


def objects(schema):
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for child in schema.values():
            yield from objects(child)
    elif isinstance(schema, list):
        for child in schema:
            yield from objects(child)


def test_every_object_of_the_schema_refuses_unknown_keys():
    schema = json.loads((CHART / "values.schema.json").read_text())
    found = list(objects(schema))
    assert len(found) > 10
    assert [item for item in found if item.get("additionalProperties") is not False] == []


def keys_of(node, schema, path=""):
    """Paths that are in the values and not in the schema, or the other way round."""
    definition = schema
    if isinstance(node, list):
        for item in node[:1]:
            yield from keys_of(item, definition.get("items", {}), f"{path}[]")
        return
    known = definition.get("properties")
    if not isinstance(node, dict) or known is None:
        return
    for key in node.keys() ^ known.keys():
        yield f"{path}.{key}"
    for key in node.keys() & known.keys():
        yield from keys_of(node[key], known[key], f"{path}.{key}")


def test_values_and_schema_name_the_same_keys():
    schema = json.loads((CHART / "values.schema.json").read_text())
    text = json.dumps(schema)
    while '{"$ref": "#/$defs/' in text:  # small enough to write out
        text = re.sub(
            r'\{"\$ref": "#/\$defs/(\w+)"\}',
            lambda found: json.dumps(schema["$defs"][found[1]]),
            text,
        )
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    missing = set(keys_of(values, json.loads(text)))
    # Resources are examples of quantities; Helm adds `global` by itself.
    assert {path for path in missing if ".resources." not in path} == {".global"}


def test_lint_is_strict():
    assert "0 chart(s) failed" in run_helm("lint", "--strict", str(CHART), "--kube-version=1.36.3")
