"""Pydantic types to structural schemas, as CustomResourceDefinitions carry them. Pure.

A structural schema knows no `$ref`, no `null` and no alternatives: references are put in place,
`X | None` becomes an optional X, and whatever else the API server would refuse, or silently not
check, raises with the path of the field.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

from modelcache_api.markers import Column
from modelcache_api.v1alpha1.base import ApiModel

Schema = dict[str, Any]

_RULES: Final = "x-kubernetes-validations"
_ANNOTATIONS: Final = ("title", "$defs")
_CHILDREN: Final = ("properties", "items", "additionalProperties")
_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})
_KEPT: Final = frozenset(
    {
        "type",
        "format",
        "description",
        "enum",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "required",
    }
)
_EXTENSIONS: Final = frozenset(
    {
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        _RULES,
    }
)
# The order in which a reader wants them.
_ORDER: Final = (
    "description",
    "type",
    "x-kubernetes-int-or-string",
    "format",
    "enum",
    "default",
    "required",
    "properties",
)
_OBJECT_META: Final[Mapping[str, Schema]] = {
    "apiVersion": {
        "type": "string",
        "description": "The version of this representation: modelcache.io/v1alpha1.",
    },
    "kind": {"type": "string", "description": "The kind of this object."},
    "metadata": {"type": "object"},
}


class UnsupportedSchemaError(ValueError):
    """A type says something that a structural schema cannot say. Names the field."""


def make_structural_schema(kind: type[ApiModel]) -> Schema:
    """The `openAPIV3Schema` of a kind.

    Raises:
        UnsupportedSchemaError: a field uses a keyword that the API server does not honour, or has
            no bound (which would also make its CEL rules too costly).
    """
    raw = kind.model_json_schema()
    root = _convert(raw, raw.get("$defs", {}), kind.__name__)
    root["properties"] = {**_OBJECT_META, **root["properties"]}
    return root


def _convert(raw: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Schema:
    schema: Schema = {}
    for keyword, value in _resolve(raw, definitions, path).items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword in _CHILDREN and isinstance(value, dict):
            schema[keyword] = _convert_children(keyword, value, definitions, path)
        elif keyword == "const":
            schema["enum"] = [value]
        elif keyword == "description":
            schema[keyword] = reflow(value)
        elif keyword == "default":
            # An absent list, map or text means the same as an empty one: a default would only
            # make what is read differ from what was applied.
            if (default := _strip(value)) not in _EMPTY:
                schema[keyword] = default
        elif keyword in _KEPT or keyword in _EXTENSIONS:
            schema[keyword] = value
        else:
            raise UnsupportedSchemaError(f"{path}: {keyword} has no place in a structural schema")
    _check(schema, path)
    return _sorted(schema)


def _convert_children(
    keyword: str, value: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> Schema:
    if keyword == "properties":
        return {
            name: _convert(child, definitions, f"{path}.{name}") for name, child in value.items()
        }
    return _convert(value, definitions, path + ("[]" if keyword == "items" else "{}"))


def _resolve(
    raw: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> Mapping[str, Any]:
    """The node with `$ref` put in place and `X | None` taken as X; siblings win, texts join."""
    node = dict(raw)
    while True:
        if (reference := node.pop("$ref", None)) is not None:
            inner = definitions[reference.removeprefix("#/$defs/")]
        elif (options := node.pop("anyOf", None)) is not None:
            inner = _only_option(options, path)
        else:
            return node
        rules = [*inner.get(_RULES, ()), *node.get(_RULES, ())]
        told = _join_descriptions(node, inner)
        node = {**inner, **node, **told} | ({_RULES: rules} if rules else {})


def _join_descriptions(field: Mapping[str, Any], inner: Mapping[str, Any]) -> Schema:
    """What the field says of itself, then what its class says; nothing twice."""
    own, of_class = field.get("description"), inner.get("description")
    if own is None or of_class is None or inner.get("type") != "object":
        return {}
    own, of_class = reflow(own), reflow(of_class)
    if own in of_class or of_class in own:
        return {"description": max(own, of_class, key=len)}
    return {"description": f"{own}\n\n{of_class}"}


def _only_option(options: list[Mapping[str, Any]], path: str) -> Mapping[str, Any]:
    given = [option for option in options if option.get("type") != "null"]
    if len(given) != 1:
        raise UnsupportedSchemaError(f"{path}: alternatives have no place in a structural schema")
    return given[0]


def _check(schema: Schema, path: str) -> None:
    """Refuse what the API server would accept but not bound."""
    if schema.get("x-kubernetes-int-or-string"):
        return
    kind = schema.get("type")
    bounds: Mapping[object, tuple[str, ...]] = {
        "string": ("maxLength", "enum", "format"),
        "array": ("maxItems",),
        "integer": ("format",),
        "boolean": ("type",),
        "object": ("properties", "maxProperties"),
    }
    if kind not in bounds:
        raise UnsupportedSchemaError(f"{path}: type {kind!r} has no place in our schemas")
    if not any(bound in schema for bound in bounds[kind]):
        raise UnsupportedSchemaError(f"{path}: needs one of {', '.join(bounds[kind])}")
    if kind == "array" and "x-kubernetes-list-type" not in schema:
        raise UnsupportedSchemaError(f"{path}: a list says how it is merged; add a ListType")


def _strip(value: Any) -> Any:
    """The value without nulls and empty members."""
    if isinstance(value, dict):
        members = {key: _strip(member) for key, member in value.items()}
        return {key: member for key, member in members.items() if member not in _EMPTY}
    return value


def _sorted(schema: Schema) -> Schema:
    first = {keyword: schema[keyword] for keyword in _ORDER if keyword in schema}
    return first | {keyword: schema[keyword] for keyword in sorted(schema.keys() - first.keys())}


def reflow(text: str) -> str:
    """One line for each paragraph.

    So `kubectl explain` breaks lines where the reader's terminal ends, not where our source did.
    """
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def make_printer_column(column: Column) -> Schema:
    """One item of `additionalPrinterColumns`."""
    shown: Schema = {"name": column.name, "type": column.kind, "jsonPath": column.json_path}
    if column.description:
        shown["description"] = column.description
    if column.priority:
        shown["priority"] = column.priority
    return shown
