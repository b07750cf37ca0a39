"""The parts of a store's error answer that we use: pure, each bounded, none trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from modelcache_api.quoted import quote
from modelcache_api.retry_after import parse_retry_after

_SHORTEST: Final = 1.0
_LONGEST: Final = 3600.0
_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """The parts of an error answer that we use, each bounded."""

    code: str
    message: str
    status: int
    headers: Mapping[str, str]
    region: str | None
    request_time: str | None
    server_time: str | None

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> StoreAnswer:
        """The parts of an answer as botocore parses it."""
        error = response.get("Error") or {}
        metadata = response.get("ResponseMetadata") or {}
        headers = {str(k).lower(): str(v) for k, v in (metadata.get("HTTPHeaders") or {}).items()}
        region = str(headers.get("x-amz-bucket-region") or error.get("Region") or "")
        server_time = error.get("ServerTime") or headers.get("date")
        return cls(
            code=str(error.get("Code") or "")[:80],
            message=str(error.get("Message") or "")[:500],
            status=int(metadata.get("HTTPStatusCode") or 0),
            headers=headers,
            region=region if _REGION.fullmatch(region) else None,
            request_time=_printable(error.get("RequestTime")),
            server_time=_printable(server_time),
        )

    @property
    def shown(self) -> str:
        """Status and code, for a message."""
        code = self.code if self.code.isalnum() and self.code.isascii() else quote(self.code)
        return f"{self.status}" if self.code == str(self.status) else f"{self.status} {code}"


def _printable(value: object) -> str | None:
    text = str(value)[:40] if value else ""
    return text if text and text.isprintable() and text.isascii() else None


def read_retry_after(headers: Mapping[str, str], now: datetime, *, default: float) -> float:
    """Seconds of a Retry-After in either form, within sane bounds; the default without one."""
    asked = parse_retry_after(headers.get("retry-after"), now.timestamp(), longest=_LONGEST)
    return default if asked is None else max(asked, _SHORTEST)
