"""The operator's Deployment and what belongs to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.helm import HelmError, pick, pick_all, pod_of, render
from modelcache_operator.config import load_config
from modelcache_operator.decide.allowed_sources import parse_allow_list

DIGEST = "sha256:" + "a" * 64


def operator(values=None):
    return pick(render(values), "Deployment", "modelcache-operator")


def images(documents):
    return {
        container["image"]
        for item in documents
        if item["kind"] in {"Deployment", "DaemonSet", "Job"}
        for container in (*pod_of(item)["containers"], *pod_of(item).get("initContainers", ()))
    }


def test_the_program_takes_every_argument(tmp_path):
    (container,) = pod_of(operator())["containers"]
    given = [
        argument.replace("/etc/modelcache", str(tmp_path / "etc")) for argument in container["args"]
    ]
    policy = tmp_path / "etc" / "source-policy" / "rules.yaml"
    limits = tmp_path / "etc" / "limits" / "limits.yaml"
    quota = limits.with_name("default-quota.yaml")
    for file in (policy, limits, quota):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    config = load_config(given, {}, hostname="pod")
    assert (config.source_policy, config.limits, config.default_quota) == (policy, limits, quota)
    mounted = {item["mountPath"] for item in container["volumeMounts"]}
    assert {f"/etc/modelcache/{name}" for name in ("source-policy", "limits")} <= mounted
    assert config.leader_elect
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    assert ports == {"grants": config.grants_bind.port, "metrics": config.http_port}
    assert config.grants_names[0] == "modelcache-operator.modelcache-system.svc"


def test_a_mirror_of_the_hub_is_the_clusters_default_only_if_it_is_named():
    def endpoint(values):
        (container,) = pod_of(operator(values))["containers"]
        given = [argument for argument in container["args"] if "=/etc/modelcache/" not in argument]
        return load_config(given, {}, hostname="pod").hub_endpoint

    assert endpoint({}) is None
    assert endpoint({"hub": {"endpoint": "http://mirror:8080/hf"}}) == "http://mirror:8080/hf"
    with pytest.raises(HelmError, match="endpoint"):
        render({"hub": {"endpoint": "mirror:8080"}})


def test_two_replicas_apart_and_never_both_away():
    documents = render()
    deployment = pick(documents, "Deployment", "modelcache-operator")
    assert deployment["spec"]["replicas"] == 2
    spread = {item["topologyKey"] for item in pod_of(deployment)["topologySpreadConstraints"]}
    assert "kubernetes.io/hostname" in spread
    budget = pick(documents, "PodDisruptionBudget", "modelcache-operator")
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"].items() <= (
        deployment["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_restricted_in_every_field(kind):
    for item in pick_all(render({"injection": {"mode": "webhook"}}), kind):
        pod = pod_of(item)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_the_service_reaches_the_pods_by_the_name_in_the_certificate():
    documents = render()
    service = pick(documents, "Service", "modelcache-operator")
    pod = pick(documents, "Deployment", "modelcache-operator")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert {"name": "grants", "port": 443, "targetPort": "grants"} in service["spec"]["ports"]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param({}, "modelcache/operator:0.1.0", id="the chart's own version by default"),
        pytest.param({"tag": "v9"}, "modelcache/operator:v9", id="a tag"),
        pytest.param(
            {"tag": "v9", "digest": DIGEST}, f"modelcache/operator@{DIGEST}", id="a digest beats it"
        ),
        pytest.param({"repository": "ours/op"}, "ours/op:0.1.0", id="another repository"),
    ],
)
def test_the_image(image, expected):
    assert expected in images(render({"operator": {"image": image}}))


def test_air_gap_one_value_moves_every_image_to_the_mirror():
    values = {"image": {"registry": "mirror.example/k8s/", "pullSecrets": ["mirror"]}}
    documents = render(values)
    assert all(image.startswith("mirror.example/k8s/modelcache/") for image in images(documents))
    for item in documents:
        if item["kind"] in {"Deployment", "DaemonSet", "Job"}:
            assert pod_of(item)["imagePullSecrets"] == [{"name": "mirror"}]


def test_every_pod_has_the_priority_and_tolerates_the_taint_of_fresh_nodes():
    documents = render()
    assert pick(documents, "PriorityClass", "modelcache")["value"] == 900_000_000
    for item in documents:
        if item["kind"] in {"Deployment", "DaemonSet", "Job"}:
            assert pod_of(item)["priorityClassName"] == "modelcache"
            taints = {taint["key"] for taint in pod_of(item)["tolerations"]}
            assert "modelcache.io/agent-not-ready" in taints


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        pytest.param(None, 1, id="the default allows S3 and no loopback"),
        pytest.param([], 0, id="no rule allows nothing"),
        pytest.param(
            [{"namespaces": ["a"], "uriPrefixes": ["s3://b/"]}, {"loopback": True}], 2, id="two"
        ),
    ],
)
def test_the_operator_reads_the_policy_as_it_is_rendered(given, rules):
    import yaml

    documents = render({} if given is None else {"sourcePolicy": given})
    text = pick(documents, "ConfigMap", "modelcache-source-policy")["data"]["rules.yaml"]
    assert len(parse_allow_list(yaml.safe_load(text)).rules) == rules


def test_the_network_policies_let_in_agents_to_grants_and_everybody_to_metrics():
    documents = render()
    ingress = pick(documents, "NetworkPolicy", "modelcache-operator")["spec"]["ingress"]
    ports = {rule["ports"][0]["port"]: rule["from"] for rule in ingress}
    assert ports[8080] == [{"namespaceSelector": {}}]
    (peer,) = ports[8443]
    agent = pick(documents, "DaemonSet", "modelcache-agent-default")
    labels = agent["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    metrics, peers = pick(documents, "NetworkPolicy", "modelcache-agent")["spec"]["ingress"]
    assert (metrics["ports"], peers["ports"]) == ([{"port": 9404}], [{"port": 9405}])


def test_named_sources_close_everything_else():
    sources = [{"ipBlock": {"cidr": "10.9.0.0/16"}}]
    values = {"networkPolicy": {"sources": sources}}
    for name in ("modelcache-operator", "modelcache-agent"):
        egress = pick(render(values), "NetworkPolicy", name)["spec"]["egress"]
        assert {"to": sources} in egress
        assert {} not in egress
        assert {"ports": [{"port": 443}, {"port": 6443}]} in egress
    open_egress = pick(render(), "NetworkPolicy", "modelcache-agent")["spec"]["egress"]
    assert open_egress == [{}]


def test_without_the_switches_the_parts_are_not_there():
    documents = render(
        {
            "networkPolicy": {"enabled": False},
            "guards": {"enabled": False},
            "crds": {"install": False},
            "rbac": {"aggregate": False},
            "priorityClass": {"create": False},
            "uninstall": {"cleanUp": False},
            "injection": {"mode": "none"},
        }
    )
    kinds = {item["kind"] for item in documents}
    assert not kinds & {
        *("NetworkPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        *("CustomResourceDefinition", "PriorityClass", "Job"),
    }
    names = {item["metadata"]["name"] for item in documents}
    assert not names & {"modelcache-view", "modelcache-edit", "modelcache-cleanup"}
    assert pod_of(pick(documents, "Deployment"))["priorityClassName"] == "modelcache"


def test_routes_bring_their_rights_and_are_off_by_default():
    def named(documents, kind):
        return {item["metadata"]["name"] for item in pick_all(documents, kind)}

    without, with_routes = render(), render({"rollouts": {"httpRoutes": True}})
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        more = named(with_routes, kind) - named(without, kind)
        assert more == {"modelcache-operator-routes"}
    (container,) = pod_of(operator())["containers"]
    assert not any("--http-routes" in argument for argument in container["args"])
    (container,) = pod_of(operator({"rollouts": {"httpRoutes": True}}))["containers"]
    assert "--http-routes=true" in container["args"]


def test_the_server_of_gates_is_the_administrators_with_its_ca_and_token(tmp_path):
    values = {
        "url": "https://prometheus:9090",
        "ca": {"configMap": "prometheus-ca"},
        "token": {"secret": "prometheus-token", "key": "bearer"},
    }
    pod = pod_of(operator({"rollouts": {"prometheus": values}}))
    (container,) = pod["containers"]
    given = [
        argument.replace("/etc/modelcache", str(tmp_path))
        for argument in container["args"]
        if "prometheus" in argument
    ]
    for argument in given[1:]:
        file = Path(argument.partition("=")[2])
        file.parent.mkdir()
        file.touch()
    config = load_config(given, {}, hostname="pod")
    assert config.prometheus_url == "https://prometheus:9090"
    assert config.prometheus_ca_file == tmp_path / "prometheus-ca" / "ca.crt"
    assert config.prometheus_token_file == tmp_path / "prometheus-token" / "bearer"
    volumes = {item["name"]: item for item in pod["volumes"]}
    assert volumes["prometheus-ca"]["configMap"] == {"name": "prometheus-ca"}
    assert volumes["prometheus-token"]["secret"] == {"secretName": "prometheus-token"}
    mounted = {item["name"] for item in container["volumeMounts"]}
    assert {"prometheus-ca", "prometheus-token"} <= mounted
    with pytest.raises(HelmError, match="url"):
        render({"rollouts": {"prometheus": {"url": "prometheus:9090"}}})
