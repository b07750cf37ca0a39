"""Versions, Secrets and sources for tests of the operator's edge."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from modelcache_api.v1alpha1.model_version import Load, ModelVersionSpec, ModelVersionStatus
from modelcache_api.v1alpha1.source import CABundleRef, SecretRef, Source
from modelcache_operator.decide.allowed_sources import AllowList, AllowRule
from modelcache_operator.decide.world import ModelVersionView, ObjectKey, Uid
from modelcache_operator.ports.keyed_data import KeyedData
from modelcache_operator.ports.sources import SourceError, Sources
from modelcache_operator.sources.client import Timeouts
from modelcache_operator.sources.hub.sources import HubSettings, HubSources
from modelcache_operator.sources.s3 import S3Settings, S3Sources
from modelcache_operator.sources.web.sources import WebSettings, WebSources

LOOPBACK_ALLOWED = AllowList(
    (AllowRule(loopback=True), AllowRule(uri_prefixes=("http://",), loopback=True))
)


class FakeKeyedData:
    """Secrets and ConfigMaps of one namespace, with a revision that counts changes."""

    def __init__(self) -> None:
        self.secrets: dict[str, KeyedData] = {}
        self.config_maps: dict[str, KeyedData] = {}
        self.reads = 0
        self._revision = 0

    def put_secret(self, name: str, **data: str) -> None:
        self.secrets[name] = self._make({key: value.encode() for key, value in data.items()})

    def put_config_map(self, name: str, data: dict[str, bytes]) -> None:
        self.config_maps[name] = self._make(data)

    def put_credentials(self, name: str, access_key: str, secret_key: str, **more: str) -> None:
        self.put_secret(
            name, AWS_ACCESS_KEY_ID=access_key, AWS_SECRET_ACCESS_KEY=secret_key, **more
        )

    async def secret(self, key: ObjectKey) -> KeyedData | None:
        self.reads += 1
        return self.secrets.get(key.name)

    async def config_map(self, key: ObjectKey) -> KeyedData | None:
        return self.config_maps.get(key.name)

    def _make(self, data: dict[str, bytes]) -> KeyedData:
        self._revision += 1
        return KeyedData(data, f"r{self._revision}")


def make_version(
    uri: str,
    *,
    endpoint: str | None = None,
    secret: str | None = None,
    bundle: str | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    digest: str | None = None,
    files: Sequence[str] | None = None,
    checksum_file: str | None = None,
    load: Sequence[str] | None = None,
    uid: str = "uid-1",
    **source: Any,
) -> ModelVersionView:
    spec = ModelVersionSpec(
        model="test/model",
        source=Source(
            uri=uri,
            endpoint=endpoint,
            credentials_secret_ref=None if secret is None else SecretRef(name=secret),
            ca_bundle_ref=None if bundle is None else CABundleRef(name=bundle),
            **source,
        ),
        include=None if include is None else tuple(include),
        exclude=None if exclude is None else tuple(exclude),
        files=None if files is None else tuple(files),
        checksum_file=checksum_file,
        digest=digest,
        load=None if load is None else Load(include=tuple(load)),
    )
    return ModelVersionView(ObjectKey("team", "v1"), Uid(uid), 1, spec, ModelVersionStatus())


def make_sources(
    data: FakeKeyedData, *, allow_list: AllowList = LOOPBACK_ALLOWED, **settings: Any
) -> S3Sources:
    settings.setdefault("timeouts", Timeouts(connect=10.0, read=10.0))
    return S3Sources(data, lambda: allow_list, settings=S3Settings(**settings))


def make_hub_sources(
    data: FakeKeyedData, *, allow_list: AllowList = LOOPBACK_ALLOWED, **settings: Any
) -> HubSources:
    clocks = {name: settings.pop(name) for name in ("clock", "monotonic") if name in settings}
    settings.setdefault("timeouts", Timeouts(connect=10.0, read=10.0))
    return HubSources(data, lambda: allow_list, **clocks, settings=HubSettings(**settings))


def make_web_sources(
    data: FakeKeyedData, *, allow_list: AllowList = LOOPBACK_ALLOWED, **settings: Any
) -> WebSources:
    clock = settings.pop("clock", time.time)
    settings.setdefault("timeouts", Timeouts(connect=10.0, read=10.0))
    return WebSources(data, lambda: allow_list, clock=clock, settings=WebSettings(**settings))


async def fail_to_resolve(sources: Sources, version: ModelVersionView) -> SourceError:
    """The error that resolving the version ends with."""
    with pytest.raises(SourceError) as caught:
        await sources.resolve(version)
    return caught.value
