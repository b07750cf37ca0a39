"""The agents' DaemonSets."""

from __future__ import annotations

import json

import pytest

from fakes.helm import CHART, pick, pick_all, pod_of, render
from modelcache_agent.config import parse_config
from modelcache_agent.decide.policies import POLICIES

GPU_TAINTS = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu")
DISK = {"path": "/mnt/nvme/models"}


def agents(values=None, profile="default"):
    return pick(render(values), "DaemonSet", f"modelcache-agent-{profile}")


def agent_pod(values=None, profile="default"):
    return pod_of(agents(values, profile))


def with_profile(**profile):
    return {"agent": {"profiles": [{"name": "p", "nodeSelector": {}, "disk": DISK} | profile]}}


def container(pod, name="agent"):
    (found,) = [item for item in pod["containers"] if item["name"] == name]
    return found


def arguments(pod):
    return container(pod)["args"]


def test_the_program_takes_every_argument():
    given = [
        argument.replace("$(NODE_NAME)", "n1").replace("$(POD_IP)", "10.1.2.3")
        for argument in arguments(agent_pod())
    ]
    config = parse_config(given, {})
    assert config.node_name == "n1"
    assert str(config.store) == "/var/lib/modelcache"
    assert config.operator_url == "https://modelcache-operator.modelcache-system.svc"


def test_C38_one_path_on_the_node_in_the_container_and_in_the_option():
    pod = agent_pod(with_profile(), "p")
    (volume,) = [item for item in pod["volumes"] if item["name"] == "store"]
    (mount,) = [item for item in container(pod)["volumeMounts"] if item["name"] == "store"]
    assert volume["hostPath"]["path"] == mount["mountPath"] == DISK["path"]
    assert f"--store={DISK['path']}" in arguments(pod)


@pytest.mark.parametrize("key", GPU_TAINTS)
def test_C39_taints_of_gpu_pools_are_tolerated_whatever_their_value(key):
    assert {"key": key, "operator": "Exists"} in agent_pod()["tolerations"]


def test_C39_custom_taints_come_from_all_profiles_and_from_one():
    everywhere = {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}
    here = {"key": "spot", "operator": "Exists"}
    values = with_profile(tolerations=[here])
    values["agent"]["tolerations"] = [everywhere]
    tolerated = agent_pod(values, "p")["tolerations"]
    assert everywhere in tolerated
    assert here in tolerated
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in tolerated


def test_the_taint_of_fresh_nodes_is_tolerated_even_if_gpu_taints_are_not():
    pod = agent_pod({"agent": {"gpuTaints": []}})
    assert pod["tolerations"] == [{"key": "modelcache.io/agent-not-ready", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("profile", "argument"),
    [
        pytest.param({"disk": DISK | {"capacity": "3500Gi"}}, "--capacity=3500Gi", id="capacity"),
        pytest.param(
            {"disk": DISK | {"requireMountpoint": True}}, "--require-mountpoint=true", id="mount"
        ),
        pytest.param({"disk": DISK | {"policy": "gdsf"}}, "--disk-policy=gdsf", id="policy"),
        pytest.param({}, "--disk-policy=lru", id="left out, the longest unused goes first"),
        pytest.param(
            {"disk": DISK | {"highWatermark": 70}}, "--disk-high-watermark=70", id="pressure begins"
        ),
        pytest.param(
            {"disk": DISK | {"lowWatermark": 60}}, "--disk-low-watermark=60", id="pressure ends"
        ),
        pytest.param({"disk": DISK | {"minResidency": "1h"}}, "--min-residency=1h", id="residency"),
        pytest.param({"disk": DISK | {"inputLog": "64Mi"}}, "--input-log=64Mi", id="input log"),
        pytest.param({}, "--min-residency=10m", id="left out, newcomers rest for ten minutes"),
        pytest.param({"fetch": {"streams": 16}}, "--streams=16", id="streams"),
        pytest.param({"fetch": {"maxModels": 1}}, "--max-models=1", id="models"),
        pytest.param({"fetch": {"maxBandwidth": "1Gi"}}, "--max-bandwidth=1Gi", id="bandwidth"),
        pytest.param({"scrub": {"interval": "24h"}}, "--scrub-interval=24h", id="scrub"),
        pytest.param({"scrub": {"interval": ""}}, "--scrub-interval=never", id="no scrub"),
        pytest.param({}, "--scrub-interval=168h", id="left out, files are scrubbed"),
        pytest.param({"scrub": {"maxBandwidth": "9Mi"}}, "--scrub-bandwidth=9Mi", id="its rate"),
        pytest.param({}, "--require-mountpoint=false", id="left out, the disk need not be mounted"),
    ],
)
def test_what_a_profile_says_is_what_its_agents_are_told(profile, argument):
    assert argument in arguments(agent_pod(with_profile(**profile), "p"))


def test_the_chart_offers_exactly_the_policies_that_agents_know():
    schema = json.loads((CHART / "values.schema.json").read_text())
    disk = schema["$defs"]["profile"]["properties"]["disk"]["properties"]
    assert disk["policy"]["enum"] == list(POLICIES)


def test_without_watermarks_the_agent_chooses():
    assert not [item for item in arguments(agent_pod()) if "watermark" in item]


def test_without_a_capacity_the_agent_chooses():
    assert not [item for item in arguments(agent_pod()) if item.startswith("--capacity")]


def test_without_a_cap_on_bandwidth_there_is_none():
    assert not [item for item in arguments(agent_pod()) if item.startswith("--max-bandwidth")]


def test_profiles_have_a_daemonset_each_with_selectors_of_their_own():
    values = {
        "agent": {
            "profiles": [
                {"name": "a", "nodeSelector": {"pool": "a"}, "disk": DISK},
                {
                    "name": "rest",
                    "nodeSelector": {},
                    "excludeNodes": {"pool": ["a", "b"]},
                    "disk": DISK,
                    "resources": {"limits": {"memory": "4Gi"}},
                },
            ]
        }
    }
    found = pick_all(render(values), "DaemonSet")
    selectors = [item["spec"]["selector"]["matchLabels"] for item in found]
    assert selectors[0] != selectors[1]
    for item, selector in zip(found, selectors, strict=True):
        assert selector.items() <= item["spec"]["template"]["metadata"]["labels"].items()
    rest = agent_pod(values, "rest")
    (term,) = rest["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {
        "matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a", "b"]}]
    }
    assert "nodeSelector" not in rest
    assert container(rest)["resources"] == {"limits": {"memory": "4Gi"}}
    assert container(agent_pod(values, "a"))["resources"]["limits"] == {"memory": "1Gi"}


def test_one_node_at_a_time_and_never_two_agents_on_one():
    strategy = agents()["spec"]["updateStrategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }


def test_a_new_version_of_the_chart_alone_restarts_nobody():
    labels = agents()["spec"]["template"]["metadata"]["labels"]
    assert "helm.sh/chart" not in labels


def test_the_grant_token_has_its_own_audience_and_the_authority_is_mounted():
    pod = agent_pod()
    sources = {item["name"]: item for item in pod["volumes"]}
    (token,) = sources["grant-token"]["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == "modelcache-grant"
    assert sources["operator-ca"]["configMap"] == {"name": "modelcache-ca"}
    mounts = {item["name"]: item["mountPath"] for item in container(pod)["volumeMounts"]}
    assert f"--grant-token-file={mounts['grant-token']}/token" in arguments(pod)
    assert f"--operator-ca-file={mounts['operator-ca']}/ca.crt" in arguments(pod)


def test_C46_what_is_written_is_the_store_and_tmp_alone():
    agent = container(agent_pod())
    assert agent["securityContext"]["readOnlyRootFilesystem"] is True
    writable = {item["mountPath"] for item in agent["volumeMounts"] if not item.get("readOnly")}
    assert writable == {"/var/lib/modelcache", "/tmp"}


def test_the_agent_asks_for_no_more_than_root_and_a_folder():
    pod = agent_pod()
    security = container(pod)["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for host in ("hostNetwork", "hostPID", "hostIPC"):
        assert host not in pod
