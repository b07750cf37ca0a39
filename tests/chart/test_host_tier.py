"""What `host.capacity` of a profile asks of the agents' pods."""

from __future__ import annotations

import pytest
import yaml

from fakes.helm import CHART, HelmError, pick, pod_of, render
from modelcache_agent.config import parse_config

BASE = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def profiled(capacity, resources=BASE):
    profile = {"name": "p", "nodeSelector": {}, "disk": {"path": "/d"}}
    profile |= {"host": {"capacity": capacity}} if capacity is not None else {}
    return {"agent": {"profiles": [profile | {"resources": resources}]}}


def agent(values, profile="p"):
    pod = pod_of(pick(render(values), "DaemonSet", f"modelcache-agent-{profile}"))
    return next(item for item in pod["containers"] if item["name"] == "agent")


def test_the_capacity_is_what_the_agent_is_told():
    given = [
        argument.replace("$(NODE_NAME)", "n1").replace("$(POD_IP)", "10.1.2.3")
        for argument in agent(profiled("1.5Gi"))["args"]
    ]
    assert parse_config(given, {}).host_capacity == 3 << 29


@pytest.mark.parametrize("capacity", [None, "0", "0Gi", "0.0"])
def test_without_a_capacity_nothing_more_is_asked_for(capacity):
    found = agent(profiled(capacity))
    assert found["resources"] == BASE
    assert found["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not [argument for argument in found["args"] if argument.startswith("--host-capacity")]


def test_locking_needs_one_capability_and_no_other_right():
    security = agent(profiled("8Gi"))["securityContext"]
    assert security == agent(profiled(None))["securityContext"] | {
        "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    }


def test_only_the_profile_with_the_tier_gets_the_capability():
    other = {"name": "q", "nodeSelector": {"pool": "q"}, "disk": {"path": "/d"}}
    values = profiled("8Gi")
    values["agent"]["profiles"][0]["nodeSelector"] = {"pool": "p"}
    values["agent"]["profiles"].append(other)
    assert "add" not in agent(values, "q")["securityContext"]["capabilities"]
    assert "add" in agent(values, "p")["securityContext"]["capabilities"]


@pytest.mark.parametrize(
    ("capacity", "limit", "expected"),
    [
        pytest.param("100Gi", "1Gi", f"{1024 + 115 * 1024}Mi", id="1Gi, and 115 % of 100Gi"),
        pytest.param("1000Mi", "500Mi", "1650Mi", id="in Mi"),
        pytest.param("1000M", "1G", "2051Mi", id="decimal units, rounded up"),
        pytest.param("2Ti", "1.5Gi", f"{1536 + 2411725}Mi", id="large, and rounded up"),
        pytest.param("1048576000", 1048576000, "2150Mi", id="bytes, as text and as a number"),
    ],
)
def test_memory_is_the_base_and_the_tier_and_15_percent_as_request_and_as_limit(
    capacity, limit, expected
):
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": limit}}
    found = agent(profiled(capacity, resources))["resources"]
    assert found == {
        "requests": {"cpu": "1", "memory": expected},
        "limits": {"cpu": "2", "memory": expected},
    }


def test_the_resources_of_all_profiles_are_the_base_of_one_that_names_none():
    found = agent(profiled("1000Mi", {}))["resources"]
    default = yaml.safe_load((CHART / "values.yaml").read_text())["agent"]["resources"]
    assert default["limits"]["memory"] == "1Gi"
    assert found["limits"]["memory"] == found["requests"]["memory"] == "2174Mi"
    assert found["requests"]["cpu"] == default["requests"]["cpu"]


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        pytest.param({"requests": {"cpu": "1"}}, "no resources.limits.memory", id="no limits"),
        pytest.param({"limits": {"cpu": "1"}}, "for example 1Gi", id="no limit on memory"),
        pytest.param({"limits": {"memory": "much"}}, '"much" is not a quantity', id="no quantity"),
        pytest.param(
            {"limits": {"memory": "0"}}, "is less than 64Mi", id="nothing beside the tier"
        ),
    ],
)
def test_a_limit_that_cannot_be_added_to_is_refused_with_the_profile_and_the_cure(resources, told):
    with pytest.raises(HelmError) as refused:
        render(profiled("8Gi", resources))
    assert told in str(refused.value)
    assert '"p"' in str(refused.value)
    assert render(profiled("0", resources))
