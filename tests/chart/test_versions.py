"""The chart on every Kubernetes that it is for, by version and by capabilities."""

from __future__ import annotations

import pytest

from fakes.helm import HelmError, render

VERSIONS = ("1.33.0", "1.34.2", "1.35.0", "1.36.3", "1.37.0")
# Where each kind is served from 1.33 to 1.37.
SERVED = {
    "v1": {"ConfigMap", "Namespace", "Secret", "Service", "ServiceAccount"},
    "apps/v1": {"DaemonSet", "Deployment"},
    "batch/v1": {"Job"},
    "policy/v1": {"PodDisruptionBudget"},
    "networking.k8s.io/v1": {"NetworkPolicy"},
    "scheduling.k8s.io/v1": {"PriorityClass"},
    "rbac.authorization.k8s.io/v1": {*("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")},
    "apiextensions.k8s.io/v1": {"CustomResourceDefinition"},
    "storage.k8s.io/v1": {"CSIDriver"},
    "admissionregistration.k8s.io/v1": {
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
        "MutatingWebhookConfiguration",
    },
}


def identity(document):
    return document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_served_what_it_knows(version):
    documents = render(kube_version=version)
    unknown = {
        (item["apiVersion"], item["kind"])
        for item in documents
        if item["kind"] not in SERVED.get(item["apiVersion"], set())
    }
    assert unknown == set()
    identities = [identity(item) for item in documents]
    assert len(identities) == len(set(identities)), "nothing is rendered twice"


@pytest.mark.parametrize("version", ["1.32.9", "1.29.0"])
def test_older_ones_are_refused_by_name(version):
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1\.33"):
        render(kube_version=version)


@pytest.mark.parametrize("version", ["v1.33.5-gke.1080000", "v1.34.1-eks-113cf36", "v1.35.0+k3s1"])
def test_versions_as_providers_write_them_are_understood(version):
    assert render(kube_version=version)


def test_namespaced_objects_name_the_release_namespace():
    for document in render(namespace="elsewhere"):
        metadata = document["metadata"]
        assert metadata.get("namespace", "elsewhere") == "elsewhere", identity(document)
        for subject in document.get("subjects", []):
            assert subject["namespace"] == "elsewhere"
        assert "modelcache-system" not in str(document), identity(document)
