"""From types to structural schemas; what has no place in one raises with the field's path."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
import yaml
from pydantic import Field

from modelcache_api import names
from modelcache_api.crdgen import KINDS, find_stale, main, render_crds, write_crds
from modelcache_api.markers import ListType, Rule
from modelcache_api.schema import UnsupportedSchemaError, make_structural_schema, reflow
from modelcache_api.v1alpha1.base import ApiModel

ROOT = Path(__file__).parents[3]
CRDS = ROOT / "crds"


def walk(node):
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from walk(child)
    elif isinstance(node, list):
        for child in node:
            yield from walk(child)


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_structural(kind):
    for node in walk(make_structural_schema(kind)):
        assert not node.keys() & {"$ref", "$defs", "title", "anyOf", "allOf", "oneOf", "nullable"}
        assert None not in node.values()


@pytest.mark.parametrize("kind", KINDS)
def test_kind_is_described_by_its_docstring_and_needs_a_spec(kind):
    schema = make_structural_schema(kind)
    assert schema["description"] == reflow(kind.__doc__)
    assert schema["required"] == ["spec"]
    assert list(schema["properties"]) == ["apiVersion", "kind", "metadata", "spec", "status"]


def spec_of(annotation, default=...):
    """The schema of one field."""

    class Spec(ApiModel):
        field: annotation = default

    class Thing(ApiModel):
        spec: Spec

    return make_structural_schema(Thing)["properties"]["spec"]["properties"]["field"]


class Inner(ApiModel):
    """Text of the class."""

    rules: ClassVar = (Rule("self.a > 0", "of the class"),)
    a: Annotated[int, Field(json_schema_extra={"format": "int32"})] = 1


Text = Annotated[str, Field(max_length=5)]


def test_optional_field_is_not_nullable():
    assert spec_of(Text | None, None) == {"type": "string", "maxLength": 5}


def test_rules_of_class_and_field_are_both_kept():
    schema = spec_of(Annotated[Inner, Rule("true", "of the field")])
    assert [r["message"] for r in schema["x-kubernetes-validations"]] == [
        "of the class",
        "of the field",
    ]


DESCRIPTIONS = [
    pytest.param("Text of the field.", "Text of the field.\n\nText of the class.", id="both"),
    pytest.param("Text of the class.", "Text of the class.", id="the same"),
    pytest.param("Text of", "Text of the class.", id="a part"),
]


@pytest.mark.parametrize(("text", "expected"), DESCRIPTIONS)
def test_descriptions_of_field_and_class_are_joined(text, expected):
    assert spec_of(Annotated[Inner, Field(description=text)])["description"] == expected


DEFAULTS = [
    pytest.param(Text, "x", "x", id="a text"),
    pytest.param(Text, "", None, id="an empty text"),
    pytest.param(Text | None, None, None, id="null"),
    pytest.param(Inner, Inner(), {"a": 1}, id="an object"),
    pytest.param(bool, False, False, id="false"),
]


@pytest.mark.parametrize(("annotation", "default", "expected"), DEFAULTS)
def test_default(annotation, default, expected):
    assert spec_of(annotation, default).get("default") == expected


UNSUPPORTED = [
    pytest.param(int | str, "alternatives", id="a choice of types"),
    pytest.param(float, "'number'", id="a float"),
    pytest.param(str, "needs one of maxLength", id="a text without bound"),
    pytest.param(int, "needs one of format", id="an integer of no size"),
    pytest.param(
        Annotated[tuple[Text, ...], ListType("set")], "maxItems", id="a list without bound"
    ),
    pytest.param(
        Annotated[tuple[Text, ...], Field(max_length=3)], "ListType", id="a list of no kind"
    ),
    pytest.param(dict[str, Text], "maxProperties", id="a map without bound"),
    pytest.param(
        Annotated[int, Field(gt=0, json_schema_extra={"format": "int32"})],
        "exclusiveMinimum",
        id="an exclusive bound",
    ),
    pytest.param(tuple[Text, Text], "prefixItems", id="a pair"),
    pytest.param(Annotated[Text, Field(examples=["x"])], "examples", id="an unknown keyword"),
]


@pytest.mark.parametrize(("annotation", "told"), UNSUPPORTED)
def test_what_the_api_server_cannot_honour_raises_with_the_path(annotation, told):
    with pytest.raises(UnsupportedSchemaError, match=r"^Thing\.spec\.field.*" + told):
        spec_of(annotation)


def test_const_becomes_an_enum():
    assert spec_of(Literal["x"])["enum"] == ["x"]


def test_paragraphs_are_one_line_each():
    assert reflow("One\n    two.\n\n    Three\n    four.\n    ") == "One two.\n\nThree four."


def test_committed_crds_are_up_to_date():
    assert find_stale(CRDS) == []
    assert main(["--check", str(CRDS)]) == 0


def test_rendering_is_deterministic_and_needs_no_anchor():
    assert render_crds() == render_crds()
    for text in render_crds().values():
        assert text.startswith("# Generated by make gen; do not edit.\n")
        assert "&id" not in text
        assert yaml.safe_load(text)["spec"]["group"] == names.GROUP


def test_check_names_every_stale_file(tmp_path, capsys):
    write_crds(tmp_path)
    changed, missing = sorted(render_crds())[:2]
    (tmp_path / changed).write_text("x")
    (tmp_path / missing).unlink()
    (tmp_path / "modelcache.io_old.yaml").write_text("x")
    assert main(["--check", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert all(f"{name} is not up to date: run make gen" in told for name in (changed, missing))
    assert "modelcache.io_old.yaml" in told
    assert main(["--write", str(tmp_path)]) == 0
