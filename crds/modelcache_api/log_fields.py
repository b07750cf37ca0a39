"""What log lines are about: object, node, model, and the trace that agent and operator share.

Held by the task and by what it starts, so that no call passes it on. The trace travels in the
header of the W3C recommendation, so that a proxy in between may log it as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

TRACE_HEADER: Final = "traceparent"
_TRACE: Final = "trace"
_HEADER: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_fields: ContextVar[Mapping[str, str]] = ContextVar("fields", default=MappingProxyType({}))


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """All lines of this task in the block tell these as well. Empty ones are left out."""
    token = _fields.set({**_fields.get(), **_told(fields)})
    try:
        yield
    finally:
        _fields.reset(token)


def learn(**fields: str) -> None:
    """As `about`, from now until the enclosing block ends."""
    _fields.set({**_fields.get(), **_told(fields)})


def add_fields(text: str, **always: str) -> str:
    """The line with ` name=value` for each field that it does not end up telling itself.

    The last `name=` of a line is always its own: before it may stand what others have written.
    """
    fields = {**_told(always), **_fields.get()}
    told = (f" {name}={value}" for name, value in fields.items() if not _tells(text, name, value))
    return text + "".join(told)


def make_trace_header() -> dict[str, str]:
    """The header for a request of this task; empty without a trace."""
    trace = _fields.get().get(_TRACE)
    if trace is None:
        return {}
    return {TRACE_HEADER: f"00-{trace}-{trace[:16]}-01"}


def read_trace_header(header: str | None) -> str:
    """The trace of a request, or "" if it has none that could be one: anybody may send any."""
    found = _HEADER.fullmatch(header or "")
    return found[1] if found and set(found[1]) != {"0"} else ""


def _told(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


def _tells(text: str, name: str, value: str) -> bool:
    """True if the last that the text says by this name is the very word `name=value`."""
    at = text.rfind(f"{name}=")
    is_word = at == 0 or (at > 0 and text[at - 1].isspace())
    return is_word and text[at:].split(maxsplit=1)[0] == f"{name}={value}"
