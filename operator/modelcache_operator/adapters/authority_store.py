"""ports.authority over a Secret and a ConfigMap in the operator's namespace."""

from __future__ import annotations

import base64
from typing import Final

from modelcache_api import names
from modelcache_kube.client import KubeClient
from modelcache_kube.errors import AlreadyExists
from modelcache_kube.resources import CONFIG_MAPS, SECRETS
from modelcache_operator.adapters.keyed_data import decode_base64
from modelcache_operator.ports.authority import KeyPair

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"


class KubeAuthorityStore:
    """The API server decides which replica's authority is the one."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def read(self) -> KeyPair | None:
        """The authority, or None if none has been made yet."""
        found = await self._client.get(SECRETS, names.CA_SECRET, self._namespace)
        if found is None:
            return None
        data = found.get("data") or {}
        return KeyPair(
            certificate=decode_base64(data.get(_CERTIFICATE, "")),
            key=decode_base64(data.get(_KEY, "")),
        )

    async def create(self, authority: KeyPair) -> bool:
        """Keep the authority if there is none; False if another replica was first."""
        data = {_CERTIFICATE: authority.certificate, _KEY: authority.key}
        secret = {
            "metadata": {"name": names.CA_SECRET, "namespace": self._namespace},
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(value).decode("ascii") for key, value in data.items()},
        }
        try:
            await self._client.create(SECRETS, secret, field_manager=names.MANAGER_OPERATOR)
        except AlreadyExists:
            return False
        return True

    async def publish(self, certificate: bytes) -> None:
        """Write the certificate where agents read it; a no-op if it is there."""
        wanted = {names.CA_CONFIG_KEY: certificate.decode("ascii")}
        found = await self._client.get(CONFIG_MAPS, names.CA_CONFIG_MAP, self._namespace)
        if found is not None and found.get("data") == wanted:
            return
        metadata = {"name": names.CA_CONFIG_MAP, "namespace": self._namespace}
        await self._client.apply(
            CONFIG_MAPS,
            {"metadata": metadata, "data": wanted},
            field_manager=names.MANAGER_OPERATOR,
        )
