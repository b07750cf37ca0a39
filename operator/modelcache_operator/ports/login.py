"""How to talk to the API server, for a client that is not our own."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ApiLogin:
    """Address and credentials as they are now. The token is a secret."""

    server: str
    ca_file: str | None = None
    token: str | None = field(default=None, repr=False)
    certificate_file: str | None = None
    key_file: str | None = None
    is_insecure: bool = False
