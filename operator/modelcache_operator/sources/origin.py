"""Which server an address leads to: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

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

    @property
    def host_header(self) -> str:
        """As requests spell it: without the scheme's own port."""
        return self.authority.removesuffix(f":{_DEFAULT_PORTS.get(self.scheme)}")


def origin_of(url: str) -> Origin | None:
    """The server that a URL leads to; None unless it is a usable http or https URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    host = (parts.hostname or "").rstrip(".")
    return Origin(parts.scheme, host, port) if host and port else None
