"""The parts of a hub's answer that we use: pure, each bounded, none trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from modelcache_operator.sources.store_answer import read_retry_after

# `"api";r=0;t=55`: what is left of the quota, and when it is full again.
_RATE_LIMIT: Final = re.compile(r'"[^"]{0,40}"\s*;\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,5})')


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """An answer that is an error. `message` is the hub's: compared with, never shown."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str]

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str]) -> HubAnswer:
        """The parts of an answer with these headers, of which names are in lower case."""
        return cls(
            status,
            headers.get("x-error-code", "")[:40],
            headers.get("x-error-message", "")[:200],
            headers,
        )

    @property
    def shown(self) -> str:
        """Status and code, for a message."""
        is_word = self.code.isalnum() and self.code.isascii()
        return f"{self.status} {self.code}" if is_word else str(self.status)

    def read_pause(self, now: datetime, *, default: float) -> float:
        """Seconds that the hub asks us to wait."""
        found = _RATE_LIMIT.search(self.headers.get("ratelimit", ""))
        if found is not None:
            default = float(found[1]) + 1.0
        return read_retry_after(self.headers, now, default=default)


class HubAnswerError(Exception):
    """The hub answered with an error."""

    def __init__(self, answer: HubAnswer) -> None:
        super().__init__(answer.shown)
        self.answer = answer
