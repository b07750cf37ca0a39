"""`s3://`: lists and signs with botocore, in threads of its own."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from modelcache_api.manifest import SourceFile, SourceManifest
from modelcache_api.names import Reason
from modelcache_api.quoted import quote
from modelcache_api.v1alpha1.source import Checksums
from modelcache_operator.decide.allowed_sources import (
    AllowList,
    Reach,
    Refusal,
    SourceRequest,
    decide_reach,
)
from modelcache_operator.decide.world import ModelVersionView
from modelcache_operator.ports.keyed_data import KeyedDataReader
from modelcache_operator.ports.sources import SignedFile, SignedPage, SourceError
from modelcache_operator.sources.access import Access, Credentials, parse_credentials, read_access
from modelcache_operator.sources.addressing import Address, make_address
from modelcache_operator.sources.client import (
    ClientCache,
    S3Client,
    Timeouts,
    make_client,
    make_session,
)
from modelcache_operator.sources.egress import check_names
from modelcache_operator.sources.errors import S3_ERRORS, Attempt, explain
from modelcache_operator.sources.location import S3Location, parse_s3_uri
from modelcache_operator.sources.reading import read_object_part
from modelcache_operator.sources.resolution import Gate, listing_too_long, resolve_location
from modelcache_operator.sources.selection import Globs
from modelcache_operator.sources.signing import sign_files

_T = TypeVar("_T")
# Names are judged again before signing, but not for each page of one download.
_NAMES_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Times and sizes. `url_seconds` is the life of a signed URL; agents ask again after it."""

    url_seconds: int = 900
    resolve_seconds: float = 300.0
    timeouts: Timeouts = field(default_factory=Timeouts)
    list_threads: int = 4
    sign_threads: int = 2
    clients: int = 64


@dataclass(frozen=True, slots=True)
class _Target:
    """One version's store, as allowed and accessible now."""

    location: S3Location
    address: Address
    access: Access[Credentials]
    reach: Reach


class S3Sources:
    """ports.sources.Sources for S3. Nothing of the operator's own identity is ever used."""

    def __init__(
        self,
        data: KeyedDataReader,
        allow_list: Callable[[], AllowList],
        *,
        clock: Callable[[], float] = time.time,
        settings: S3Settings | None = None,
    ) -> None:
        self._data = data
        self._allow_list = allow_list
        self._clock = clock
        self._settings = settings or S3Settings()
        self._session = make_session()
        self._clients: ClientCache[S3Client] = ClientCache(self._settings.clients)
        self._names_checked: OrderedDict[tuple[Address, Reach], float] = OrderedDict()
        self._listing = ThreadPoolExecutor(self._settings.list_threads, "s3-list")
        self._signing = ThreadPoolExecutor(self._settings.sign_threads, "s3-sign")

    async def resolve(
        self, version: ModelVersionView, _revision: str | None = None
    ) -> SourceManifest:
        """The selected files with sizes and identities. Cancelling ends the listing at a page."""
        target = await self._prepare(version)
        await check_names(target.address, target.reach)
        gate = Gate(time.monotonic() + self._settings.resolve_seconds)
        globs = Globs(version.spec.include, version.spec.exclude)
        # A look at a resolved version compares identities; what was stated of it is kept.
        is_resolved = version.status.source_digest is not None
        checksums = Checksums.IGNORE if is_resolved else version.spec.source.checksums
        try:
            async with asyncio.timeout(self._settings.resolve_seconds):
                return await self._run(
                    self._listing,
                    target,
                    lambda client: resolve_location(
                        client, target.location, globs, gate.check, checksums
                    ),
                )
        except TimeoutError:
            raise listing_too_long() from None
        finally:
            gate.close()

    async def sign(
        self, version: ModelVersionView, files: Sequence[SourceFile], _revision: str | None = None
    ) -> SignedPage:
        """One short-lived URL for each file, in the same order. Sends nothing to the store."""
        target = await self._prepare(version)
        await self._check_names_sometimes(target)
        seconds = self._settings.url_seconds
        expires_at = self._clock() + seconds
        urls = await self._run(
            self._signing,
            target,
            lambda client: sign_files(client, target.location, files, seconds),
        )
        signed = (
            SignedFile(file.path, url, (), expires_at)
            for file, url in zip(files, urls, strict=True)
        )
        return SignedPage(tuple(signed), target.access.ca_bundle)

    async def read(
        self, _version: ModelVersionView, file: SourceFile, _revision: str | None = None
    ) -> bytes:
        """Nothing: there is a URL for each object."""
        raise SourceError(Reason.SOURCE_INVALID, f"{quote(file.path)} is read at its own address")

    async def read_part(
        self,
        version: ModelVersionView,
        file: SourceFile,
        start: int,
        end: int,
        _revision: str | None = None,
    ) -> bytes:
        """Bytes [start, end) of an object as it was listed."""
        target = await self._prepare(version)
        await self._check_names_sometimes(target)
        return await self._run(
            self._listing,
            target,
            lambda client: read_object_part(client, target.location, file, (start, end)),
        )

    async def close(self) -> None:
        """End the threads once their present calls are over."""
        self._listing.shutdown(wait=False, cancel_futures=True)
        self._signing.shutdown(wait=False, cancel_futures=True)

    async def _prepare(self, version: ModelVersionView) -> _Target:
        source = version.spec.source
        try:
            location = parse_s3_uri(source.uri)
        except ValueError as error:
            raise SourceError(Reason.SOURCE_INVALID, str(error)) from None
        address = make_address(source, location.bucket)
        request = SourceRequest(version.key.namespace, source.uri, address.authority)
        reach = decide_reach(self._allow_list(), request)
        if isinstance(reach, Refusal):
            raise SourceError(Reason.SOURCE_NOT_ALLOWED, reach.message)
        access = await read_access(self._data, version, parse_credentials)
        return _Target(location, address, access, reach)

    async def _check_names_sometimes(self, target: _Target) -> None:
        key = (target.address, target.reach)
        now = time.monotonic()
        if self._names_checked.get(key, -_NAMES_SECONDS) + _NAMES_SECONDS > now:
            return
        await check_names(target.address, target.reach)
        self._names_checked[key] = now
        self._names_checked.move_to_end(key)
        if len(self._names_checked) > self._settings.clients:
            self._names_checked.popitem(last=False)

    async def _run(
        self, threads: ThreadPoolExecutor, target: _Target, call: Callable[[S3Client], _T]
    ) -> _T:
        def work() -> _T:
            key = (target.address, target.reach, target.access.revision)
            return call(self._clients.get(key, lambda: self._make_client(target)))

        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except S3_ERRORS as error:
            now = datetime.fromtimestamp(self._clock(), UTC)
            is_anonymous = target.access.credentials is None
            raise explain(error, Attempt(target.address, is_anonymous, now)) from None

    def _make_client(self, target: _Target) -> S3Client:
        return make_client(
            self._session, target.address, target.access, target.reach, self._settings.timeouts
        )
