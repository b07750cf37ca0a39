"""Where a hub is: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from modelcache_api.names import Reason
from modelcache_operator.ports.sources import SourceError
from modelcache_operator.sources.origin import Origin, origin_of

EXAMPLE: Final = "write it like https://hub.example.com or http://mirror:8080/path"


@dataclass(frozen=True, slots=True)
class HubEndpoint:
    """The hub or a mirror. `url` has no slash at its end; a mirror may lie below a path."""

    url: str
    origin: Origin


def parse_endpoint(url: str) -> HubEndpoint:
    """The endpoint of that address.

    Raises:
        SourceError: SourceInvalid.
    """
    found = read_endpoint(url)
    if found is None:
        raise SourceError(
            Reason.SOURCE_INVALID,
            f"source.endpoint {url[:200]!r} is no address of a hub: {EXAMPLE}",
        )
    return found


def read_endpoint(url: str) -> HubEndpoint | None:
    """The endpoint of that address; None if it can be none."""
    trimmed = url.rstrip("/")
    origin = origin_of(trimmed)
    parts = urlsplit(trimmed) if origin else None
    if origin is None or parts is None or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return HubEndpoint(trimmed, origin)
