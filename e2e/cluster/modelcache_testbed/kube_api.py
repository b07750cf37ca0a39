"""A small blocking client of the Kubernetes API, for the test bed's own errands.

Programs under test use the official client; this one exists so that bringing up a cluster needs
no more than the standard library.
"""

from __future__ import annotations

import http.client
import json
import select
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from modelcache_testbed.errors import ApiError, TestbedError
from modelcache_testbed.kubeconfig import read_connection

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

Document = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
_JSON = "application/json"


class KubeApi:
    """One connection to one API server; may be shared between threads."""

    def __init__(self, kubeconfig: Path, *, user_agent: str = "modelcache-testbed") -> None:
        """Read how to connect; connects on first use."""
        self._target = read_connection(kubeconfig)
        self._context = self._target.tls_context()
        self._lock = threading.Lock()
        self._connection: http.client.HTTPSConnection | None = None
        self._headers = {"Accept": _JSON, "User-Agent": user_agent}
        if self._target.token:
            self._headers["Authorization"] = f"Bearer {self._target.token}"

    @property
    def server(self) -> str:
        """Return the address of the API server."""
        return self._target.server

    @property
    def authority(self) -> str:
        """Return the certificates that the API server is trusted by, as PEM."""
        return self._target.authority or ""

    def is_ready(self) -> bool:
        """Say whether the API server calls itself ready."""
        try:
            return self._send("GET", "/readyz", None, _JSON)[0] == http.client.OK
        except TestbedError:
            return False

    def get(self, path: str, **query: str) -> Document:
        """Read an object or a list."""
        return self._call("GET", path + (f"?{urlencode(query)}" if query else ""))

    def find(self, path: str) -> Document | None:
        """Read an object; None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def create(self, path: str, body: Mapping[str, Any]) -> Document:
        """Create an object in the collection at ``path``."""
        return self._call("POST", path, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Document:
        """Replace an object."""
        return self._call("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Document:
        """Merge ``body`` into an object."""
        return self._call("PATCH", path, body, MERGE_PATCH)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Delete an object; none being there is fine."""
        try:
            self._call("DELETE", path, body)
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
    ) -> Document:
        status, raw = self._send(method, path, body, content_type)
        try:
            document: Document = json.loads(raw) if raw else {}
        except ValueError:
            document = {"message": raw.decode(errors="replace").strip()}
        if status >= http.client.BAD_REQUEST:
            raise ApiError(status, str(document.get("message", "no message")))
        return document

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str
    ) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body)
        headers = {**self._headers, **({"Content-Type": content_type} if content else {})}
        with self._lock:
            try:
                connection = self._connected()
                connection.request(method, quote(path, safe="/?&=%,"), content, headers)
                response = connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                message = f"{self.server} does not answer: {error or type(error).__name__}"
                raise TestbedError(message) from error

    def _connected(self) -> http.client.HTTPSConnection:
        if self._connection and self._connection.sock and _is_closed(self._connection.sock):
            self._drop()
        if self._connection is None:
            address = urlsplit(self.server)
            self._connection = http.client.HTTPSConnection(
                address.hostname or "", address.port or 443, context=self._context, timeout=30
            )
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _is_closed(idle: socket.socket) -> bool:
    # Nothing is due on an idle connection, so readable means that the server has hung up.
    return bool(select.select([idle], [], [], 0)[0])


def find_condition(status: Document, kind: str) -> Document:
    """Return the condition of that type, or an empty document."""
    return next((c for c in status.get("conditions", []) if c["type"] == kind), {})
