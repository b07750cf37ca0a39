"""ports.keyed_data over the API server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from modelcache_kube.client import KubeClient
from modelcache_kube.errors import Forbidden
from modelcache_kube.resources import CONFIG_MAPS, SECRETS, Resource
from modelcache_operator.decide.world import ObjectKey
from modelcache_operator.ports.keyed_data import KeyedData, KeyedDataForbiddenError


class KubeKeyedData:
    """Reads single Secrets and ConfigMaps; keeps nothing."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def secret(self, key: ObjectKey) -> KeyedData | None:
        """The Secret's data, or None if there is no such Secret."""
        found = await self._get(SECRETS, key)
        return None if found is None else _parse(found, encoded="data", plain=None)

    async def config_map(self, key: ObjectKey) -> KeyedData | None:
        """The ConfigMap's data and binaryData, or None if there is no such ConfigMap."""
        found = await self._get(CONFIG_MAPS, key)
        return None if found is None else _parse(found, encoded="binaryData", plain="data")

    async def _get(self, resource: Resource, key: ObjectKey) -> dict[str, Any] | None:
        try:
            return await self._client.get(resource, key.name, key.namespace)
        except Forbidden as error:
            raise KeyedDataForbiddenError(f"{resource.plural} {key}") from error


def _parse(found: Mapping[str, Any], *, encoded: str, plain: str | None) -> KeyedData:
    data = {key: decode_base64(text) for key, text in (found.get(encoded) or {}).items()}
    if plain is not None:
        data |= {key: text.encode() for key, text in (found.get(plain) or {}).items()}
    metadata = found["metadata"]
    return KeyedData(data, revision=f"{metadata['uid']}:{metadata['resourceVersion']}")


def decode_base64(text: str) -> bytes:
    """The bytes that the API server encoded; empty if it is no base64, which it never sends."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
