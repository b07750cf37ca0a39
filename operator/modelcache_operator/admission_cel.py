"""JSON Patch in CEL: literals, operations and conditions that both policies are made of. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from modelcache_api import names
from modelcache_operator.injection_rules import MIRROR_ANNOTATION, OS_LABEL, WINDOWS
from modelcache_operator.json_patch import escape_key

Raw = dict[str, Any]

ANNOTATIONS: Final = "object.metadata.?annotations.orValue({})"
LABELS: Final = "object.metadata.labels"


class Cel(str):
    """An expression, where plain text would be a literal."""

    __slots__ = ()


def to_cel(value: Any) -> str:
    """A JSON value as a CEL literal. Members of maps are `dyn`, since they differ in type."""
    match value:
        case Cel():
            return str(value)
        case Mapping():
            members = (f"{json.dumps(key)}: dyn({to_cel(one)})" for key, one in value.items())
            return "{" + ", ".join(members) + "}"
        case list():
            return "[" + ", ".join(to_cel(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=True)


def quote(text: str) -> str:
    """A text as a literal."""
    return json.dumps(text)


def member(container: str, key: str) -> str:
    """A member that may be missing, of a map that is there; empty text without it."""
    return f'{container}[?{quote(key)}].orValue("")'


def build_conditions(mark: str) -> list[Raw]:
    """Which pods are meant; `mark` is the annotation of those that have been through it."""
    wanted = {
        "names-a-cache": f'{member(LABELS, names.LABEL_CACHE)} != ""',
        "not-windows": (
            f'object.spec.?os.name.orValue("") != {quote(WINDOWS)} && '
            f'object.spec.?nodeSelector[?{quote(OS_LABEL)}].orValue("") != {quote(WINDOWS)}'
        ),
        "not-a-mirror": f"!({quote(MIRROR_ANNOTATION)} in {ANNOTATIONS})",
        "not-yet": f"!({quote(mark)} in {ANNOTATIONS})",
    }
    return [{"name": name, "expression": text} for name, text in wanted.items()]


def build_variables(texts: Mapping[str, str]) -> list[Raw]:
    """Named expressions, as a policy lists them."""
    return [{"name": name, "expression": text} for name, text in texts.items()]


def build_mutation(pieces: Iterable[str]) -> list[Raw]:
    """One JSON Patch, made of lists of operations."""
    expression = " +\n".join(pieces)
    return [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]


def add(path: str, value: Any) -> str:
    """One operation; `path` is a literal unless it is an expression."""
    where = path if isinstance(path, Cel) else quote(path)
    return f'JSONPatch{{op: "add", path: {where}, value: {to_cel(value)}}}'


def when(condition: str, *operations: str) -> str:
    """Operations that depend on a condition."""
    return f"({condition} ? [{', '.join(operations)}] : [])"


def annotate(marks: Mapping[str, Any]) -> Iterable[str]:
    """Annotations, with the map that may be missing."""
    yield when(f"size({ANNOTATIONS}) == 0", add("/metadata/annotations", {}))
    for key, value in marks.items():
        yield f"[{add(f'/metadata/annotations/{escape_key(key)}', value)}]"
