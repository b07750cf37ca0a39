"""`hf://`: lists and signs with the hub's own client, in threads of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from modelcache_api.manifest import SourceFile, SourceManifest
from modelcache_api.names import Reason
from modelcache_operator.decide.allowed_sources import AllowList
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.keyed_data import KeyedDataReader
from modelcache_operator.ports.sources import SignedFile, SignedPage, SourceError
from modelcache_operator.sources.access import read_access
from modelcache_operator.sources.client import ClientCache, Timeouts
from modelcache_operator.sources.hub.access import parse_token
from modelcache_operator.sources.hub.addresses import FileAddress, RecentAddresses
from modelcache_operator.sources.hub.connections import HubConnections
from modelcache_operator.sources.hub.conversation import (
    Conversation,
    speaking,
    take_over_library,
)
from modelcache_operator.sources.hub.errors import HUB_ERRORS, Attempt, explain
from modelcache_operator.sources.hub.library import HubLibrary, default_endpoint
from modelcache_operator.sources.hub.listing import list_repository
from modelcache_operator.sources.hub.reading import (
    ask_address,
    read_small,
    settle_address,
    try_one,
)
from modelcache_operator.sources.hub.small_files import RecentBodies
from modelcache_operator.sources.hub.target import HubTarget, find_place
from modelcache_operator.sources.partial.answer import check_part, range_header
from modelcache_operator.sources.resolution import Gate, listing_too_long
from modelcache_operator.sources.selection import Globs
from modelcache_operator.sources.turns import NamespaceTurns

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Times and sizes. `url_seconds` is the life of addresses that do not say their own."""

    url_seconds: float = 900.0
    handed_over_seconds: float = 300.0
    """Agents read these with their own token, which they must look at again now and then."""
    recent_seconds: float = 300.0
    recent_addresses: int = 20_000
    recent_body_bytes: int = 32 * 1024 * 1024
    resolve_seconds: float = 300.0
    timeouts: Timeouts = field(default_factory=Timeouts)
    list_threads: int = 4
    sign_threads: int = 32
    sign_at_once: int = 8
    """Questions of one namespace."""
    clients: int = 64
    default_endpoint: str | None = None
    """Of versions that name none; None is the library's own."""


class HubSources:
    """ports.sources.Sources for the hub and its mirrors. No token but the version's is ever used.

    One at a time in a process: the library has one client for all of it.
    """

    def __init__(
        self,
        data: KeyedDataReader,
        allow_list: Callable[[], AllowList],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        settings: HubSettings | None = None,
    ) -> None:
        self._data = data
        self._allow_list = allow_list
        self._clock = clock
        self._settings = settings = settings or HubSettings()
        self._connections: ClientCache[HubConnections] = ClientCache(settings.clients)
        self._addresses = RecentAddresses(
            settings.recent_addresses, settings.recent_seconds, clock, monotonic
        )
        self._bodies = RecentBodies(settings.recent_body_bytes, settings.recent_seconds, monotonic)
        self._listing = ThreadPoolExecutor(settings.list_threads, "hub-list")
        self._signing = NamespaceTurns(settings.sign_threads, settings.sign_at_once, "hub-sign")
        take_over_library()

    async def resolve(
        self, version: ModelVersionView, revision: str | None = None
    ) -> SourceManifest:
        """The selected files of the commit that the URI's revision is now, or of the one given."""
        target = await self._prepare(version)
        globs = Globs(version.spec.include, version.spec.exclude)
        gate = Gate(time.monotonic() + self._settings.resolve_seconds)

        def work(library: HubLibrary) -> SourceManifest:
            manifest = list_repository(library, target.location, revision, globs)
            try_one(library, target, manifest)
            return manifest

        try:
            async with asyncio.timeout(self._settings.resolve_seconds):
                speak = self._speak(target, work, gate.check, is_resolved=revision is not None)
                return await asyncio.get_running_loop().run_in_executor(self._listing, speak)
        except TimeoutError:
            raise listing_too_long() from None
        finally:
            gate.close()

    async def sign(
        self, version: ModelVersionView, files: Sequence[SourceFile], revision: str | None = None
    ) -> SignedPage:
        """A short-lived address for each file, in the same order. Large files cost a question."""
        target = await self._prepare(version)
        commit = _known(revision)
        library = HubLibrary(target.endpoint.url, target.access.credentials)
        known = [self._recall(library, target, commit, file) for file in files]
        questions = [
            asyncio.ensure_future(self._ask(target, commit, file))
            for file, address in zip(files, known, strict=True)
            if address is None
        ]
        try:
            answers = iter(await asyncio.gather(*questions))
        except BaseException:
            for question in questions:
                question.cancel()
            raise
        addresses = [address or next(answers) for address in known]
        signed = (
            SignedFile(file.path, address.url, (), address.expires_at)
            for file, address in zip(files, addresses, strict=True)
        )
        return SignedPage(tuple(signed), target.access.ca_bundle)

    async def read(
        self, version: ModelVersionView, file: SourceFile, revision: str | None = None
    ) -> bytes:
        """The bytes of a small file that only the token can read."""
        target = await self._prepare(version)
        commit = _known(revision)
        key = (*target.files_key, commit, file.path)

        def work(library: HubLibrary) -> bytes:
            body = self._bodies.get(key)
            if body is None:
                body = read_small(library, target, commit, file)
                self._bodies.put(key, body)
            return body

        return await self._ask_in_turn(target, work)

    async def read_part(
        self,
        version: ModelVersionView,
        file: SourceFile,
        start: int,
        end: int,
        revision: str | None = None,
    ) -> bytes:
        """Bytes [start, end) of a file of the commit."""
        target = await self._prepare(version)
        repository, commit = target.location.repository, _known(revision)
        wanted = range_header(start, end)

        def work(library: HubLibrary) -> bytes:
            status, found, body = library.read_part(repository, commit, file.path, wanted)
            return check_part(file, (start, end), status, found, body)

        return await self._ask_in_turn(target, work)

    async def close(self) -> None:
        """End the threads once their present calls are over."""
        self._listing.shutdown(wait=False, cancel_futures=True)
        self._signing.close()

    async def _prepare(self, version: ModelVersionView) -> HubTarget:
        default = self._settings.default_endpoint or default_endpoint()
        location, endpoint, reach = find_place(version, default, self._allow_list())
        access = await read_access(self._data, version, parse_token)
        return HubTarget(version, location, endpoint, reach, access, self._allow_list)

    def _recall(
        self, library: HubLibrary, target: HubTarget, commit: str, file: SourceFile
    ) -> FileAddress | None:
        """The file's address, where the hub need not be asked."""
        address = settle_address(library, target, commit, file, self._ends_at(target))
        return address or self._addresses.get((*target.files_key, commit, file.path))

    async def _ask(self, target: HubTarget, commit: str, file: SourceFile) -> FileAddress:
        ends_at = self._ends_at(target)

        def work(library: HubLibrary) -> FileAddress:
            found = ask_address(library, target, commit, file, ends_at)
            self._addresses.put((*target.files_key, commit, file.path), found)
            return found

        return await self._ask_in_turn(target, work)

    def _ends_at(self, target: HubTarget) -> float:
        settings = self._settings
        if target.access.credentials is None:
            return self._clock() + settings.url_seconds
        return self._clock() + min(settings.url_seconds, settings.handed_over_seconds)

    async def _ask_in_turn(self, target: HubTarget, work: Callable[[HubLibrary], _T]) -> _T:
        namespace = target.version.key.namespace
        return await self._signing.run(namespace, self._speak(target, work))

    def _speak(
        self,
        target: HubTarget,
        work: Callable[[HubLibrary], _T],
        checkpoint: Callable[[], None] = lambda: None,
        *,
        is_resolved: bool = True,
    ) -> Callable[[], _T]:
        """The work, for a thread."""

        def speak() -> _T:
            connections = self._connections.get(
                target.connections_key,
                lambda: HubConnections(
                    target.judge, target.access.ca_bundle, self._settings.timeouts
                ),
            )
            try:
                with speaking(Conversation(target.endpoint, connections, checkpoint)):
                    return work(HubLibrary(target.endpoint.url, target.access.credentials))
            except HUB_ERRORS as error:
                raise explain(error, self._describe(target, is_resolved=is_resolved)) from None

        return speak

    def _describe(self, target: HubTarget, *, is_resolved: bool) -> Attempt:
        return Attempt(
            endpoint=target.endpoint,
            location=target.location,
            is_anonymous=target.access.credentials is None,
            is_resolved=is_resolved,
            now=datetime.fromtimestamp(self._clock(), UTC),
        )


def _known(revision: str | None) -> str:
    if revision is None:
        raise SourceError(Reason.SOURCE_ERROR, "the stored list of files names no commit")
    return revision
