"""Each source to those who know its scheme."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from modelcache_api.manifest import SourceFile, SourceManifest
from modelcache_api.names import Reason, Scheme
from modelcache_operator.decide.allowed_sources import AllowList
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.keyed_data import KeyedDataReader
from modelcache_operator.ports.sources import SignedPage, SourceError, Sources
from modelcache_operator.sources.s3 import S3Sources


class SourcesByScheme:
    """ports.sources.Sources over several of them; each is made when the first version needs it.

    A client is tens of megabytes that a cluster without such sources would carry for nothing.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Sources]]) -> None:
        self._makers = makers
        self._made: dict[str, Sources] = {}
        self._lock = asyncio.Lock()

    async def resolve(
        self, version: ModelVersionView, revision: str | None = None
    ) -> SourceManifest:
        """The selected files with sizes and identities."""
        return await (await self._of(version)).resolve(version, revision)

    async def sign(
        self, version: ModelVersionView, files: Sequence[SourceFile], revision: str | None = None
    ) -> SignedPage:
        """One short-lived URL for each file, in the same order."""
        return await (await self._of(version)).sign(version, files, revision)

    async def read(
        self, version: ModelVersionView, file: SourceFile, revision: str | None = None
    ) -> bytes:
        """The bytes of a file that has no URL."""
        return await (await self._of(version)).read(version, file, revision)

    async def read_part(
        self,
        version: ModelVersionView,
        file: SourceFile,
        start: int,
        end: int,
        revision: str | None = None,
    ) -> bytes:
        """Some bytes of a file."""
        return await (await self._of(version)).read_part(version, file, start, end, revision)

    async def close(self) -> None:
        """End what was made."""
        for sources in self._made.values():
            await sources.close()

    async def _of(self, version: ModelVersionView) -> Sources:
        scheme, _, _ = version.spec.source.uri.partition("://")
        if scheme not in self._makers:
            known = ", ".join(f"{name}://" for name in self._makers)
            raise SourceError(Reason.SOURCE_INVALID, f"source.uri must begin with one of {known}")
        async with self._lock:
            if scheme not in self._made:
                # Loading a client takes half a second, which others need not wait for.
                self._made[scheme] = await asyncio.to_thread(self._makers[scheme])
            return self._made[scheme]


def make_sources(
    data: KeyedDataReader,
    allow_list: Callable[[], AllowList],
    *,
    hub_endpoint: str | None = None,
) -> SourcesByScheme:
    """All that we know. `hub_endpoint` is the hub of versions that name none."""

    def make_hub() -> Sources:
        # 30 MB of memory, for those who have such sources.
        from modelcache_operator.sources.hub.sources import (  # noqa: PLC0415
            HubSettings,
            HubSources,
        )

        settings = HubSettings(default_endpoint=hub_endpoint)
        return HubSources(data, allow_list, settings=settings)

    def make_web() -> Sources:
        # Its HTTP client is of no use to others.
        from modelcache_operator.sources.web.sources import WebSources  # noqa: PLC0415

        return WebSources(data, allow_list)

    return SourcesByScheme(
        {
            Scheme.S3: lambda: S3Sources(data, allow_list),
            Scheme.HUB: make_hub,
            Scheme.HTTPS: make_web,
            Scheme.HTTP: make_web,
        }
    )
