"""A private certificate authority for servers of tests."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

from modelcache_operator.ports.authority import KeyPair
from modelcache_operator.tls import issue_leaf, make_authority, make_server_context


class PrivateAuthority:
    """One authority; `context` is a server's, `pem` what clients must trust."""

    def __init__(self) -> None:
        self.pair: KeyPair = make_authority(datetime.now(UTC))

    @property
    def pem(self) -> bytes:
        return self.pair.certificate

    def leaf(self, *hosts: str) -> KeyPair:
        return issue_leaf(self.pair, hosts or ("127.0.0.1", "localhost"), datetime.now(UTC))

    def context(self, *hosts: str) -> ssl.SSLContext:
        return make_server_context(self.leaf(*hosts))
