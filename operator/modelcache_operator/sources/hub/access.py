"""The token and CA bundle of a version's source, read anew for each call."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelcache_api import names
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.keyed_data import KeyedDataReader
from modelcache_operator.sources.access import parse_bundle, parse_text, read_bundle, read_secret


@dataclass(frozen=True, slots=True)
class HubAccess:
    """Without a token, requests are anonymous. `revision` changes whenever the rest may have."""

    token: str | None = field(default=None, repr=False)
    ca_bundle: str | None = None
    revision: tuple[str, ...] = ()


async def read_hub_access(reader: KeyedDataReader, version: ModelVersionView) -> HubAccess:
    """The access that the version's source names.

    Raises:
        SourceError: SecretNotFound, SecretInvalid or CABundleInvalid.
    """
    source = version.spec.source
    namespace = version.key.namespace
    token, ca_bundle = None, None
    revision: list[str] = []
    if (secret := source.credentials_secret_ref) is not None:
        data = await read_secret(reader, namespace, secret)
        token = parse_text(data, names.SECRET_HUB_TOKEN, secret.name)
        revision.append(f"secret:{data.revision}")
    if (bundle := source.ca_bundle_ref) is not None:
        data = await read_bundle(reader, namespace, bundle)
        ca_bundle = parse_bundle(data, bundle)
        revision.append(f"bundle:{data.revision}")
    return HubAccess(token, ca_bundle, tuple(revision))
