"""Values of decisions as JSON and back, without a schema of their own. Pure.

Objects carry their type: `{"$": "<kind>", "of": "<module>:<name>", "v": ...}`, where the kind is
`data` (a dataclass; fields with their default are left out), `model` (an object of the API) or
`word` (a word of an enumeration). Sets are `{"$": "set", "v": [...]}`, mappings `{"$": "map", "v":
[[key, value], ...]}`. Only types of the packages below are made again, and only of these kinds:
a log runs no code.

CodecError    the text is of no value that is known here
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel

_PACKAGES: Final = ("modelcache_agent.decide.", "modelcache_api.")
_PLAIN: Final = (str, int, float, bool, type(None))


class CodecError(Exception):
    """A value cannot be written or read; one sentence that says which."""


def to_text(encoded: Any) -> str:
    """The one text of an encoded value."""
    return json.dumps(encoded, sort_keys=True, separators=(",", ":"))


def encode(value: Any) -> Any:
    """What JSON can hold of the value. Equal values give equal results.

    Raises:
        CodecError: it holds a type that is not of ours.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, tuple | list):
        return [encode(one) for one in value]
    match value:
        case Mapping():
            return {"$": "map", "v": [[encode(k), encode(v)] for k, v in value.items()]}
        case frozenset() | set():
            return {"$": "set", "v": sorted((encode(one) for one in value), key=to_text)}
        case _:
            kind, body = _take_apart(value)
            return {"$": kind, "of": _name(type(value)), "v": body}


def _take_apart(value: Any) -> tuple[str, Any]:
    if isinstance(value, Enum):
        return "word", value.value
    if isinstance(value, BaseModel):
        return "model", value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return "data", _encode_fields(value)
    raise CodecError(f"{type(value).__name__} has no form in the log")


def decode(encoded: Any) -> Any:
    """The value; mappings become dicts, lists tuples.

    Raises:
        CodecError: it names a type that is not of ours, or does not fit it.
    """
    if isinstance(encoded, list):
        return tuple(decode(one) for one in encoded)
    if not isinstance(encoded, dict):
        return encoded
    try:
        return _decode_object(encoded)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CodecError(f"{encoded.get('of', encoded.get('$'))}: {error}") from error


def _decode_object(encoded: Mapping[str, Any]) -> Any:
    kind, body = encoded["$"], encoded["v"]
    if kind == "set":
        return frozenset(decode(one) for one in body)
    if kind == "map":
        return {decode(key): decode(value) for key, value in body}
    made = _find(encoded["of"])
    if kind == "word" and issubclass(made, Enum):
        return made(body)
    if kind == "model" and issubclass(made, BaseModel):
        return made.model_validate(body)
    if kind == "data" and dataclasses.is_dataclass(made):
        return made(**{name: decode(value) for name, value in body.items()})
    raise CodecError(f"{encoded['of']} is no {kind}")


def _encode_fields(value: Any) -> dict[str, Any]:
    made = {}
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        if field.default is dataclasses.MISSING or held != field.default:
            made[field.name] = encode(held)
    return made


def _name(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if not name.startswith(_PACKAGES):
        raise CodecError(f"{name} has no form in the log")
    return name


@lru_cache(maxsize=256)
def _find(name: str) -> type:
    module, _, qualified = name.partition(":")
    if not name.startswith(_PACKAGES) or not qualified.isidentifier():
        raise CodecError(f"{name} is no type of a decision")
    try:
        found = getattr(importlib.import_module(module), qualified)
    except (ImportError, AttributeError) as error:
        raise CodecError(f"{name} is not known to this release") from error
    if not isinstance(found, type):
        raise CodecError(f"{name} is no type")
    return found
