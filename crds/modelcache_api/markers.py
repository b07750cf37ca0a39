"""Annotations that become x-kubernetes-* keywords of the structural schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema


@dataclass(frozen=True)
class ListType:
    """How server-side apply merges a list: `atomic`, `set`, or `map` by its keys."""

    kind: str
    keys: tuple[str, ...] = ()

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = dict(handler(core))
        schema["x-kubernetes-list-type"] = self.kind
        if self.keys:
            schema["x-kubernetes-list-map-keys"] = list(self.keys)
        return schema


@dataclass(frozen=True)
class MapType:
    """How server-side apply merges a map: `atomic` or `granular`."""

    kind: str

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(handler(core)) | {"x-kubernetes-map-type": self.kind}


@dataclass(frozen=True)
class Rule:
    """One CEL validation, beside the field it guards. `message` names the field and the cure."""

    rule: str
    message: str
    field_path: str | None = None

    def as_keyword(self) -> dict[str, str]:
        """The rule as an item of x-kubernetes-validations."""
        keyword = {"rule": self.rule, "message": self.message}
        return keyword if self.field_path is None else keyword | {"fieldPath": self.field_path}

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = dict(handler(core))
        rules = list(schema.get("x-kubernetes-validations", []))
        schema["x-kubernetes-validations"] = [*rules, self.as_keyword()]
        return schema


@dataclass(frozen=True)
class Matches:
    """A pattern with a message that says what to write.

    The API server's own message only quotes the expression; both are shown.
    """

    pattern: str
    message: str

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = dict(handler(core))
        target = next(
            (option for option in schema.get("anyOf", ()) if option.get("type") == "string"), schema
        )
        target["pattern"] = self.pattern
        rule = Rule(f"self.matches(r'{self.pattern}')", self.message)
        rules = list(schema.get("x-kubernetes-validations", []))
        schema["x-kubernetes-validations"] = [*rules, rule.as_keyword()]
        return schema


@dataclass(frozen=True)
class IntOrString:
    """A field that takes an integer or one word; the rest of its schema is CEL."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        kept = {
            key: value
            for key, value in handler(core).items()
            if key not in ("anyOf", "type", "minimum", "maximum", "const", "enum")
        }
        return kept | {"x-kubernetes-int-or-string": True}


@dataclass(frozen=True)
class Column:
    """One printer column of `kubectl get`. `priority` 1 shows it only with `-o wide`."""

    name: str
    json_path: str
    kind: str = "string"
    description: str = ""
    priority: int = 0
