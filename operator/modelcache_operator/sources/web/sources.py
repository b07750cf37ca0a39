"""`https://` and `http://`: finds files by HEAD, in threads of its own; agents read them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from modelcache_api.manifest import SourceFile, SourceManifest, make_source_manifest
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_operator.decide.allowed_sources import AllowList
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.keyed_data import KeyedDataReader
from modelcache_operator.ports.sources import SignedFile, SignedPage, SourceError
from modelcache_operator.sources.access import read_trust
from modelcache_operator.sources.client import ClientCache, Timeouts
from modelcache_operator.sources.connections import JudgedConnections
from modelcache_operator.sources.resolution import Gate, listing_too_long
from modelcache_operator.sources.selection import Globs
from modelcache_operator.sources.turns import NamespaceTurns
from modelcache_operator.sources.web.conversation import WebConversation
from modelcache_operator.sources.web.errors import WEB_ERRORS, explain
from modelcache_operator.sources.web.indexes import (
    DEFAULT_CHECKSUM_FILE,
    SHARD_INDEX,
    parse_checksums,
    parse_shards,
)
from modelcache_operator.sources.web.probing import Prober
from modelcache_operator.sources.web.selection import Wanted, select_wanted
from modelcache_operator.sources.web.target import WebTarget, find_place

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Times and sizes. `url_seconds` is how long an agent reads before it asks again."""

    url_seconds: float = 900.0
    resolve_seconds: float = 300.0
    timeouts: Timeouts = field(default_factory=Timeouts)
    threads: int = 32
    at_once: int = 8
    """Questions of one namespace."""
    clients: int = 64


class WebSources:
    """ports.sources.Sources for plain web servers. Nothing but requests is ever sent."""

    def __init__(
        self,
        data: KeyedDataReader,
        allow_list: Callable[[], AllowList],
        *,
        clock: Callable[[], float] = time.time,
        settings: WebSettings | None = None,
    ) -> None:
        self._data = data
        self._allow_list = allow_list
        self._clock = clock
        self._settings = settings = settings or WebSettings()
        self._connections: ClientCache[JudgedConnections] = ClientCache(settings.clients)
        self._turns = NamespaceTurns(settings.threads, settings.at_once, "web")

    async def resolve(
        self, version: ModelVersionView, _revision: str | None = None
    ) -> SourceManifest:
        """The selected files with sizes and identities. Cancelling ends it at a file."""
        target = await self._prepare(version)
        gate = Gate(time.monotonic() + self._settings.resolve_seconds)
        target = replace(target, checkpoint=gate.check)
        try:
            async with asyncio.timeout(self._settings.resolve_seconds):
                wanted = await self._find_names(version, target)
                files = await self._find_files(version, target, wanted)
                largest = max(files, key=lambda file: file.size_bytes)
                await self._ask(version, target, lambda prober: prober.try_one(largest))
                return make_source_manifest(files)
        except TimeoutError:
            raise listing_too_long() from None
        finally:
            gate.close()

    async def sign(
        self, version: ModelVersionView, files: Sequence[SourceFile], _revision: str | None = None
    ) -> SignedPage:
        """The address of each file, in the same order. Sends nothing to the server."""
        target = await self._prepare(version)
        expires_at = self._clock() + self._settings.url_seconds
        signed = (
            SignedFile(file.path, target.location.url_of(file.path), (), expires_at)
            for file in files
        )
        return SignedPage(tuple(signed), target.ca_bundle)

    async def read(
        self, _version: ModelVersionView, file: SourceFile, _revision: str | None = None
    ) -> bytes:
        """Nothing: each file has its address."""
        raise SourceError(Reason.SOURCE_INVALID, f"{quote(file.path)} is read at its own address")

    async def read_part(
        self,
        version: ModelVersionView,
        file: SourceFile,
        start: int,
        end: int,
        _revision: str | None = None,
    ) -> bytes:
        """Bytes [start, end) of a file as it was found."""
        target = await self._prepare(version)
        return await self._ask(version, target, lambda prober: prober.read_part(file, (start, end)))

    async def close(self) -> None:
        """End the threads once their present calls are over."""
        self._turns.close()

    async def _prepare(self, version: ModelVersionView) -> WebTarget:
        location, reach = find_place(version, self._allow_list())
        trust = await read_trust(self._data, version)
        source = (version.key.namespace, version.spec.source.uri)
        return WebTarget(location, reach, trust.ca_bundle, (*source, reach, trust.ca_bundle))

    async def _find_names(self, version: ModelVersionView, target: WebTarget) -> tuple[Wanted, ...]:
        spec = version.spec
        globs = Globs(spec.include, spec.exclude)
        if target.location.file_name is not None:
            return select_wanted([target.location.file_name], globs)
        if spec.files is None:
            name = spec.checksum_file or DEFAULT_CHECKSUM_FILE
            checksums = await self._ask(version, target, partial(_read_checksums, name))
            return select_wanted(checksums, globs, checksums)
        listed = [wanted.path for wanted in select_wanted(spec.files, globs)]
        shards: list[str] = []
        for index in (path for path in listed if path.endswith(SHARD_INDEX)):
            shards += await self._ask(version, target, partial(_read_shards, index))
        return select_wanted([*listed, *shards], globs)

    async def _find_files(
        self, version: ModelVersionView, target: WebTarget, wanted: Sequence[Wanted]
    ) -> list[SourceFile]:
        questions = [
            asyncio.ensure_future(self._ask(version, target, partial(_find, one))) for one in wanted
        ]
        try:
            return await asyncio.gather(*questions)
        except BaseException:
            for question in questions:
                question.cancel()
            raise

    async def _ask(
        self, version: ModelVersionView, target: WebTarget, question: Callable[[Prober], _T]
    ) -> _T:
        """One question in its turn."""

        def ask() -> _T:
            connections = self._connections.get(
                target.connections_key,
                lambda: JudgedConnections(target.judge, target.ca_bundle, self._settings.timeouts),
            )
            try:
                return question(Prober(WebConversation(target, connections), self._now))
            except WEB_ERRORS as error:
                raise explain(error, target.location.origin.authority) from None

        return await self._turns.run(version.key.namespace, ask)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def _read_checksums(name: str, prober: Prober) -> Mapping[str, str]:
    return parse_checksums(prober.read_index(name), name)


def _read_shards(index: str, prober: Prober) -> Sequence[str]:
    return parse_shards(prober.read_index(index), index)


def _find(wanted: Wanted, prober: Prober) -> SourceFile:
    return prober.find(wanted)
