"""Writing kubeconfig files, and reading the few fields that the test bed itself needs."""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from modelcache_testbed.certificates import KeyPair, write_private
from modelcache_testbed.errors import TestbedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _document(server: str, authority: Mapping[str, str], user: Mapping[str, str]) -> bytes:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": {"server": server, **authority}}],
        "users": [{"name": "user", "user": dict(user)}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "user"}}],
        "current-context": "testbed",
    }
    return yaml.safe_dump(document, sort_keys=False).encode()


def write_certificate_kubeconfig(path: Path, server: str, authority: Path, user: KeyPair) -> None:
    """Write a kubeconfig that carries everything it needs inside."""
    credentials = {
        "client-certificate-data": _encoded(user.certificate),
        "client-key-data": _encoded(user.key),
    }
    authorities = {"certificate-authority-data": _encoded(authority)}
    write_private(path, _document(server, authorities, credentials))


def write_token_kubeconfig(path: Path, server: str, authority: Path, token_file: Path) -> None:
    """Write a kubeconfig whose token is read from a file, so that it can be renewed."""
    authorities = {"certificate-authority": str(authority)}
    write_private(path, _document(server, authorities, {"tokenFile": str(token_file)}))


@dataclass(frozen=True)
class Connection:
    """How to reach an API server: address, trust, and who one is."""

    server: str
    authority: str | None
    token: str | None
    certificate: bytes | None
    key: bytes | None

    def tls_context(self) -> ssl.SSLContext:
        """Build the TLS settings of this connection."""
        context = ssl.create_default_context(cadata=self.authority)
        if self.certificate and self.key:
            with tempfile.NamedTemporaryFile(prefix="modelcache-") as pair:  # mode 0600
                pair.write(self.certificate + b"\n" + self.key)
                pair.flush()
                context.load_cert_chain(pair.name)
        return context


def read_connection(path: Path) -> Connection:
    """Read the current context of a kubeconfig.

    Certificates and tokens are understood; a plug-in that fetches credentials is not.
    """
    document = yaml.safe_load(path.read_text())
    context = _named(document, "context", document.get("current-context", ""))
    cluster = _named(document, "cluster", context["cluster"])
    user = _named(document, "user", context["user"])
    if "exec" in user or "auth-provider" in user:
        message = (
            f"{path} gets its credentials from a plug-in; give one with a token or certificate"
        )
        raise TestbedError(message)
    authority = _content(path, cluster, "certificate-authority")
    token = user.get("token")
    if "tokenFile" in user:
        token = (path.parent / user["tokenFile"]).read_text().strip()
    return Connection(
        server=cluster["server"],
        authority=authority.decode() if authority else None,
        token=token,
        certificate=_content(path, user, "client-certificate"),
        key=_content(path, user, "client-key"),
    )


def _named(document: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    for entry in document.get(f"{kind}s", []):
        if entry["name"] == name:
            found: dict[str, Any] = entry[kind]
            return found
    message = f"the kubeconfig has no {kind} named {name!r}"
    raise TestbedError(message)


def _content(path: Path, section: Mapping[str, Any], field: str) -> bytes | None:
    inline = section.get(f"{field}-data")
    if inline:
        return base64.b64decode(inline)
    file = section.get(field)
    return (path.parent / Path(file)).read_bytes() if file else None
