"""Where a hub is: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from modelcache_api.names import Reason
from modelcache_operator.ports.sources import SourceError

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """A server: whoever may see what is meant for one port need not see it at another."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and port as allow-lists and messages spell them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


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
    trimmed = url.rstrip("/")
    origin = origin_of(trimmed)
    parts = urlsplit(trimmed) if origin else None
    if origin is None or parts is None or parts.query or parts.fragment or "@" in parts.netloc:
        raise SourceError(
            Reason.SOURCE_INVALID,
            f"source.endpoint {url[:200]!r} is no address of a hub: "
            "write it like https://hub.example.com or http://mirror:8080/path",
        )
    return HubEndpoint(trimmed, origin)


def origin_of(url: str) -> Origin | None:
    """The server that a URL leads to; None unless it is a usable http or https URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    host = (parts.hostname or "").rstrip(".")
    return Origin(parts.scheme, host, port) if host and port else None
