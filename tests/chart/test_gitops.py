"""What docs/gitops.md installs: its values render, and to what the page says."""

from __future__ import annotations

import re

import pytest
import yaml

from fakes.helm import CHART, NAMESPACE, render

ROOT = CHART.parents[1]
PAGE = ROOT / "docs/gitops.md"


def manifest(kind: str, name: str = "modelcache") -> dict:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = [one for block in blocks for one in yaml.safe_load_all(block)]
    (wanted,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return wanted


def kinds(documents: list[dict]) -> set[str]:
    return {document["kind"] for document in documents}


def test_the_application_brings_its_namespace_and_no_certificate_of_its_own():
    spec = manifest("Application")["spec"]
    assert ROOT / spec["source"]["path"] == CHART
    assert spec["destination"]["namespace"] == NAMESPACE
    documents = render(spec["source"]["helm"]["valuesObject"])
    (namespace,) = [one for one in documents if one["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert "MutatingAdmissionPolicy" in kinds(documents)
    assert not {"Secret", "MutatingWebhookConfiguration"} & kinds(documents)


def test_what_argo_cd_renders_twice_is_the_same():
    values = manifest("Application")["spec"]["source"]["helm"]["valuesObject"]
    render_again = values | {"image": {"registry": ""}}  # another key of the cache, the same values
    assert render(values) == render(render_again)


def test_flux_installs_the_chart_into_the_namespace_that_the_page_labels():
    release = manifest("HelmRelease")["spec"]
    assert ROOT / release["chart"]["spec"]["chart"] == CHART
    assert release["targetNamespace"] == manifest("Namespace", NAMESPACE)["metadata"]["name"]
    assert "Namespace" not in kinds(render(release["values"]))


@pytest.mark.parametrize("kind", ["ModelCache", "ModelVersion", "ModelCacheQuota"])
def test_definitions_are_kept_when_the_application_goes(kind):
    (definition,) = [
        one
        for one in render(manifest("Application")["spec"]["source"]["helm"]["valuesObject"])
        if one["kind"] == "CustomResourceDefinition" and one["spec"]["names"]["kind"] == kind
    ]
    assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
