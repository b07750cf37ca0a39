"""What is generated, what is kept, and the whole as one golden file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from fakes.helm import CHART, pick_all, render
from modelcache_api.crdgen import render_crds
from modelcache_chart.__main__ import find_stale
from modelcache_chart.values_page import UndocumentedError, render_values_page

ROOT = CHART.parents[1]
GOLDEN = Path(__file__).parents[1] / "golden" / "chart" / "default.yaml"
UPDATE = "MODELCACHE_UPDATE_GOLDEN"


def test_generated_files_are_up_to_date():
    assert find_stale(ROOT) == []


def test_definitions_are_those_of_crds_and_survive_an_uninstall():
    expected = {
        name: definition
        for text in render_crds().values()
        for definition in [yaml.safe_load(text)]
        for name in [definition["metadata"]["name"]]
    }
    found = pick_all(render(), "CustomResourceDefinition")
    assert {item["metadata"]["name"] for item in found} == expected.keys()
    for item in found:
        assert item["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert item["spec"] == expected[item["metadata"]["name"]]["spec"]


def test_rights_are_those_of_the_files_to_the_letter():
    documents = {
        (item["kind"], item["metadata"]["name"]): item
        for file in ("accounts.yaml", "rbac-operator.yaml", "rbac-agent.yaml")
        for item in yaml.safe_load_all((CHART / "files" / file).read_text())
        if item["kind"] != "Namespace"
    }
    rendered = {(item["kind"], item["metadata"]["name"]): item for item in render()}
    for key, expected in documents.items():
        found = rendered[key]
        assert found["metadata"].pop("labels")["app.kubernetes.io/name"] == "modelcache"
        assert found == expected


def test_the_namespace_is_rendered_on_request_and_kept():
    assert not pick_all(render(), "Namespace")
    (found,) = pick_all(render({"namespace": {"create": True}}), "Namespace")
    assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_value_without_a_comment_is_found():
    with pytest.raises(UndocumentedError, match=r"a\.b"):
        render_values_page("a:\n  # Said.\n  c: 1\n  b: 2\n")


def test_golden():
    # The definitions have their own tests.
    documents = render({"crds": {"install": False}})
    text = yaml.safe_dump_all(documents, sort_keys=True, width=100)
    if os.environ.get(UPDATE):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text, f"look at the difference; {UPDATE}=1 takes it over"
