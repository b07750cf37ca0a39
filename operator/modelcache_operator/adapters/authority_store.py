"""ports.authority over a Secret and a ConfigMap in the operator's namespace."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from modelcache_api import names
from modelcache_kube.client import KubeClient
from modelcache_kube.errors import AlreadyExists, Conflict, NotFound
from modelcache_kube.resources import CONFIG_MAPS, SECRETS
from modelcache_operator.adapters.keyed_data import decode_base64
from modelcache_operator.ports.authority import Authority, KeyPair

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_FOLLOWING_CERTIFICATE: Final = "following.crt"
_FOLLOWING_KEY: Final = "following.key"
_PREVIOUS_CERTIFICATE: Final = "previous.crt"


class KubeAuthorityStore:
    """The API server decides which replica's authority is the one."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def read(self) -> Authority | None:
        """The authority, or None if none has been made yet."""
        found = await self._client.get(SECRETS, names.CA_SECRET, self._namespace)
        return None if found is None else _parse(found)

    async def create(self, current: KeyPair) -> bool:
        """Keep the authority if there is none; False if another replica was first."""
        secret = {
            "metadata": {"name": names.CA_SECRET, "namespace": self._namespace},
            "type": "kubernetes.io/tls",
            "data": {_CERTIFICATE: _encode(current.certificate), _KEY: _encode(current.key)},
        }
        try:
            await self._client.create(SECRETS, secret, field_manager=names.MANAGER_OPERATOR)
        except AlreadyExists:
            return False
        return True

    async def replace(self, authority: Authority) -> bool:
        """Keep a next state; False if what it was made from is not what is kept any more."""
        following = authority.following
        data = {
            _CERTIFICATE: authority.current.certificate,
            _KEY: authority.current.key,
            _FOLLOWING_CERTIFICATE: following.certificate if following else None,
            _FOLLOWING_KEY: following.key if following else None,
            _PREVIOUS_CERTIFICATE: authority.previous,
        }
        asked = "true" if authority.is_rotation_asked else None
        patch = {
            "metadata": {
                "resourceVersion": authority.version,
                "annotations": {names.ANNOTATION_ROTATE: asked},
            },
            "data": {key: _encode(value) if value else None for key, value in data.items()},
        }
        try:
            await self._client.merge_patch(
                SECRETS,
                names.CA_SECRET,
                patch,
                namespace=self._namespace,
                field_manager=names.MANAGER_OPERATOR,
            )
        except (Conflict, NotFound):
            return False
        return True

    async def publish(self, bundle: bytes, now: datetime) -> datetime:
        """Write the bundle where agents read it, unless it is there; since when it has been."""
        wanted = {names.CA_CONFIG_KEY: bundle.decode("ascii")}
        found = await self._client.get(CONFIG_MAPS, names.CA_CONFIG_MAP, self._namespace)
        since = _published_since(found) if found is not None else None
        if found is not None and found.get("data") == wanted and since is not None:
            return since
        metadata = {
            "name": names.CA_CONFIG_MAP,
            "namespace": self._namespace,
            "annotations": {names.ANNOTATION_BUNDLE_SINCE: now.isoformat()},
        }
        await self._client.apply(
            CONFIG_MAPS,
            {"metadata": metadata, "data": wanted},
            field_manager=names.MANAGER_OPERATOR,
        )
        return now


def _parse(secret: Mapping[str, Any]) -> Authority:
    data = {key: decode_base64(value) for key, value in (secret.get("data") or {}).items()}
    following = None
    if _FOLLOWING_CERTIFICATE in data:
        following = KeyPair(data[_FOLLOWING_CERTIFICATE], data.get(_FOLLOWING_KEY, b""))
    metadata = secret["metadata"]
    return Authority(
        current=KeyPair(data.get(_CERTIFICATE, b""), data.get(_KEY, b"")),
        following=following,
        previous=data.get(_PREVIOUS_CERTIFICATE),
        is_rotation_asked=names.ANNOTATION_ROTATE in (metadata.get("annotations") or {}),
        version=metadata["resourceVersion"],
    )


def _published_since(config_map: Mapping[str, Any]) -> datetime | None:
    annotations = config_map["metadata"].get("annotations") or {}
    try:
        since = datetime.fromisoformat(annotations.get(names.ANNOTATION_BUNDLE_SINCE, ""))
    except ValueError:
        return None
    return since if since.tzinfo is not None else None


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
