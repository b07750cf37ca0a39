"""The part of JSON Patch (RFC 6902) that injection speaks: `add`, nothing else. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

Operation = dict[str, Any]

ADD: Final = "add"
_AT_THE_END: Final = "-"


def escape_key(key: str) -> str:
    """A member's name as one step of a path."""
    return key.replace("~", "~0").replace("/", "~1")


def add_all(document: Mapping[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """A copy of the document with everything added.

    Raises:
        ValueError: an operation is not `add`, or its parent is missing.
    """
    result = copy.deepcopy(dict(document))
    for operation in operations:
        if operation["op"] != ADD:
            raise ValueError(f"not an add: {operation}")
        _add(result, operation["path"], copy.deepcopy(operation["value"]))
    return result


def _add(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = (_unescape(step) for step in path.split("/")[1:])
    target: Any = document
    for step in parents:
        try:
            target = target[int(step)] if isinstance(target, list) else target[step]
        except (KeyError, IndexError) as error:
            raise ValueError(f"there is no parent for {path}") from error
    if isinstance(target, list):
        target.insert(len(target) if last == _AT_THE_END else int(last), value)
    else:
        target[last] = value


def _unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
