"""How the chart brings models into pods: the driver, and the ways of injection."""

from __future__ import annotations

import base64

import pytest
import yaml
from cryptography import x509

from chart.test_agents import agent_pod, container, with_profile
from fakes.helm import CHART, HelmError, pick, pick_all, pod_of, render
from modelcache_agent.volume.csi import OPTIONS
from modelcache_api.names import ANNOTATION_SWITCHED_OFF
from modelcache_cli.checklist.values import Switch

POLICIES = {"modelcache-injection", "modelcache-placement"}


def kinds(documents):
    return {item["kind"] for item in documents}


def test_the_driver_says_what_the_kubelet_must_do():
    spec = pick(render(), "CSIDriver", "csi.modelcache.io")["spec"]
    assert spec == {
        "volumeLifecycleModes": ["Ephemeral"],
        "podInfoOnMount": True,
        "attachRequired": False,
        "fsGroupPolicy": "None",
        "seLinuxMount": False,
    }


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, None),
        ({"injection": {"mode": "none"}}, {Switch.INJECTION}),
        ({"injection": {"mode": "none"}, "csi": {"enabled": False}}, set(Switch)),
    ],
)
def test_what_is_switched_off_on_purpose_is_told_to_the_checklist(values, told):
    operator = pick(render(values), "Deployment", "modelcache-operator")
    words = operator["metadata"].get("annotations", {}).get(ANNOTATION_SWITCHED_OFF)
    assert (words and set(words.split())) == told


def test_the_drivers_container_shares_the_store_and_passes_mounts_on():
    pod = agent_pod(with_profile() | {"csi": {"kubeletDir": "/data/kubelet"}}, "p")
    driver, agent = container(pod, "csi"), container(pod)
    options = {f"--{option.name}" for option in OPTIONS}
    assert driver["args"][0] == "csi"
    assert {argument.partition("=")[0] for argument in driver["args"][1:]} <= options
    assert "--kubelet-dir=/data/kubelet" in driver["args"]
    assert driver["image"] == agent["image"]
    store = {"name": "store", "mountPath": "/mnt/nvme/models"}
    assert store in driver["volumeMounts"]
    assert store in agent["volumeMounts"]
    assert {
        "name": "kubelet",
        "mountPath": "/data/kubelet",
        "mountPropagation": "Bidirectional",
    } in driver["volumeMounts"]


def test_only_the_driver_is_privileged_and_only_it_sees_the_kubelets_folder():
    pod = agent_pod()
    assert container(pod, "csi")["securityContext"]["privileged"] is True
    assert "privileged" not in container(pod)["securityContext"]
    assert "kubelet" not in {mount["name"] for mount in container(pod)["volumeMounts"]}


@pytest.mark.parametrize(
    ("version", "mode", "way"),
    [
        pytest.param("1.33.0", "auto", "webhook", id="auto is the webhook before 1.36"),
        pytest.param("1.35.4", "auto", "webhook", id="auto is the webhook on 1.35"),
        pytest.param("1.36.0", "auto", "policy", id="auto is the policy from 1.36 on"),
        pytest.param("1.37.0", "auto", "policy", id="auto is the policy on 1.37"),
        pytest.param("1.36.0", "webhook", "webhook", id="the webhook where there are policies"),
        pytest.param("1.36.0", "none", "none", id="nothing on request"),
    ],
)
def test_the_way_of_injection(version, mode, way):
    found = kinds(render({"injection": {"mode": mode}}, kube_version=version))
    assert ("MutatingAdmissionPolicy" in found) is (way == "policy")
    assert ("MutatingWebhookConfiguration" in found) is (way == "webhook")


def test_capabilities_say_it_before_the_version_does():
    served = ["admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"]
    found = kinds(render(kube_version="1.35.0", api_versions=served))
    assert "MutatingAdmissionPolicy" in found
    assert "MutatingWebhookConfiguration" not in found


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"injection": {"mode": "policy"}}, "Kubernetes 1.36", id="policies too early"),
        pytest.param({"csi": {"enabled": False}}, "enable csi, or set none", id="no driver"),
    ],
)
def test_what_cannot_work_is_refused_with_the_cure(values, message):
    with pytest.raises(HelmError, match=message):
        render(values, kube_version="1.35.0")


def test_without_driver_and_injection_no_container_is_privileged():
    documents = render({"csi": {"enabled": False}, "injection": {"mode": "none"}})
    assert not pick_all(documents, "CSIDriver")
    for document in pick_all(documents, "DaemonSet"):
        assert [item["name"] for item in pod_of(document)["containers"]] == ["agent"]


def test_the_policies_are_the_generated_ones_with_our_image_and_namespace():
    values = {"image": {"registry": "mirror.example"}}
    documents = render(values, namespace="elsewhere")
    text = (CHART / "files" / "injection-policy.yaml").read_text()
    text = text.replace("modelcache-agent-image", "mirror.example/modelcache/agent:0.1.0")
    expected = yaml.safe_load_all(text.replace("modelcache-system", "elsewhere"))
    found = {
        (item["kind"], item["metadata"]["name"]): item["spec"]
        for item in documents
        if item["metadata"]["name"] in POLICIES
    }
    assert found == {(item["kind"], item["metadata"]["name"]): item["spec"] for item in expected}


def webhook(**values):
    settings = {"injection": {"mode": "webhook", "webhook": values}}
    return render(settings, namespace="elsewhere")


def test_the_api_server_trusts_the_webhooks_certificate_for_its_service():
    documents = webhook()
    data = pick(documents, "Secret", "modelcache-webhook-tls")["data"]
    leaf = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
    (registration,) = pick(documents, "MutatingWebhookConfiguration")["webhooks"]
    client = registration["clientConfig"]
    authority = x509.load_pem_x509_certificate(base64.b64decode(client["caBundle"]))
    leaf.verify_directly_issued_by(authority)
    service = pick(documents, "Service", client["service"]["name"])
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    ]
    pod = pick(documents, "Deployment", "modelcache-webhook")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == "modelcache-webhook-tls"


def test_C48_the_webhook_is_asked_only_for_our_pods_briefly_and_never_blocks():
    (hook,) = pick(webhook(), "MutatingWebhookConfiguration")["webhooks"]
    assert hook["failurePolicy"] == "Ignore"
    assert hook["timeoutSeconds"] == 2
    assert hook["objectSelector"]["matchExpressions"] == [
        {"key": "modelcache.io/cache", "operator": "Exists"}
    ]
    (own,) = hook["namespaceSelector"]["matchExpressions"]
    assert own["values"] == ["elsewhere"]


def test_an_existing_certificate_is_used_and_none_is_made():
    documents = webhook(existingSecret="ours", caBundle="QUJD")
    assert not pick_all(documents, "Secret")
    (hook,) = pick(documents, "MutatingWebhookConfiguration")["webhooks"]
    assert hook["clientConfig"]["caBundle"] == "QUJD"
    pod = pod_of(pick(documents, "Deployment", "modelcache-webhook"))
    assert pod["volumes"][0]["secret"]["secretName"] == "ours"


def test_the_webhook_takes_its_arguments_and_the_agents_image(monkeypatch):
    from modelcache_operator.webhook import load_webhook_config

    (only,) = pod_of(pick(webhook(), "Deployment", "modelcache-webhook"))["containers"]
    assert only["args"][0] == "webhook"
    config = load_webhook_config(only["args"][1:])
    assert config.wait_image == "modelcache/agent:0.1.0"
    assert only["ports"][0]["containerPort"] == config.port
