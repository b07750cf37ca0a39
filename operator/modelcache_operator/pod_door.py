"""The pods' door: which version a name stands for, its grants, and its small files.

It is open where grants.forPods says so. Pods propose nothing: what every node holds rests on
agents alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import web

from modelcache_api import names
from modelcache_api.names import Reason
from modelcache_api.pod_wire import PodVersion, PodVersionRequest
from modelcache_api.v1alpha1.cache_node import EntrySpec
from modelcache_api.wire import (
    MAX_PAGE_FILES,
    Grant,
    GrantedFile,
    GrantQuery,
    GrantRequest,
    GrantResponse,
    WireError,
)
from modelcache_operator.decide.pod_access import (
    PodCaller,
    check_namespace,
    describe_version,
    judge_version,
    make_entry,
    refuse_absent,
    refuse_uid,
    refuse_unreadable,
)
from modelcache_operator.decide.world import ModelVersionView, ObjectKey, Uid
from modelcache_operator.door_http import (
    Route,
    parse_body,
    read_body,
    require_pace,
    require_synced,
    respond,
    take_place,
)
from modelcache_operator.file_answer import build_file_answer, refuse_file, send_whole
from modelcache_operator.grant_authentication import DeniedError
from modelcache_operator.grants import FileRefusedError, GrantService
from modelcache_operator.pod_authentication import PodAuthenticator
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.rate_limit import RateLimiter

logger = logging.getLogger(__name__)
_OFF: Final = "grants for pods are off: set the chart's grants.forPods to true"


@dataclass(frozen=True, slots=True)
class PodDoorSettings:
    """Bounds of one namespace and of one request: no namespace can hold all places."""

    body_bytes: int = 16 * 1024
    requests_per_second: float = 20.0
    requests_burst: float = 500.0
    at_once: int = 8
    of_namespace: int = 4
    seconds: float = 30.0


class PodDoor:
    """Answers pods for Ready ModelVersions of their own namespace and for nothing else."""

    def __init__(
        self,
        service: GrantService,
        authenticator: PodAuthenticator,
        world: ObservedWorld,
        *,
        clock: Callable[[], float],
        is_open: bool = True,
        settings: PodDoorSettings | None = None,
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self._world = world
        self._is_open = is_open
        self._settings = settings = settings or PodDoorSettings()
        self._rate = RateLimiter(settings.requests_per_second, settings.requests_burst, clock=clock)
        self._at_once = asyncio.Semaphore(settings.at_once)
        self._working: Counter[str] = Counter()

    @property
    def routes(self) -> tuple[Route, ...]:
        """All questions. Behind a closed door each is refused without looking at who asks."""
        return (
            Route("POST", names.PATH_POD_VERSIONS, self._name),
            Route("POST", names.PATH_POD_GRANTS, self._grant),
            Route("GET", names.PATH_POD_FILES, self._file, r"/{uid}/{number:\d{1,6}}"),
        )

    async def _name(self, request: web.Request) -> web.StreamResponse:
        async with asyncio.timeout(self._settings.seconds):
            caller = await self._admit(request)
            body = await read_body(request, self._settings.body_bytes)
            answer = self._look_up(caller, parse_body(PodVersionRequest, body))
            if answer.error is not None:
                self._log_refusal(caller, answer.error)
                return await respond(HTTPStatus.CONFLICT, answer)
            return await respond(HTTPStatus.OK, answer)

    async def _grant(self, request: web.Request) -> web.StreamResponse:
        async with asyncio.timeout(self._settings.seconds):
            caller = await self._admit(request)
            body = await read_body(request, self._settings.body_bytes)
            queries = parse_body(GrantRequest, body).entries
            if len(queries) > 1:
                raise DeniedError(HTTPStatus.BAD_REQUEST, "a pod asks for one version at a time")
            most = self._settings.of_namespace
            async with take_place(self._working, caller.namespace, most), self._at_once:
                grant = await self._grant_one(caller, queries[0])
            return await respond(HTTPStatus.OK, GrantResponse(grants=(grant,)))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        async with asyncio.timeout(self._settings.seconds):
            caller = await self._admit(request)
        uid, number = Uid(request.match_info["uid"]), int(request.match_info["number"])
        most = self._settings.of_namespace
        # Places are held until the last byte went: bodies that wait for slow readers are memory.
        async with take_place(self._working, caller.namespace, most), self._at_once:
            try:
                async with asyncio.timeout(self._settings.seconds):
                    body = await self._read(caller, uid, number)
            except FileRefusedError as refused:
                self._log_refusal(caller, refused.error)
                return refuse_file(refused)
            answer = build_file_answer(body, request.headers.get("Range"))
            return await send_whole(request, answer, self._settings.seconds)

    async def _admit(self, request: web.Request) -> PodCaller:
        if not self._is_open:
            raise DeniedError(HTTPStatus.FORBIDDEN, _OFF)
        require_synced(is_synced=self._world.is_synced)
        caller = await self._authenticator.authenticate(request.headers.get("Authorization"))
        require_pace(self._rate.delay(caller.namespace), "pods of this namespace ask too often")
        return caller

    def _look_up(self, caller: PodCaller, asked: PodVersionRequest) -> PodVersion:
        if error := check_namespace(caller, asked):
            return PodVersion(error=error)
        key = self._key_of(caller, asked)
        if isinstance(key, WireError):
            return PodVersion(error=key)
        version = self._world.model_version_named(key)
        if version is None:
            if self._world.unreadable.has_version(key):
                return PodVersion(error=refuse_unreadable())
            reason = Reason.MODEL_VERSION_NOT_FOUND
            return PodVersion(error=refuse_absent(reason, "ModelVersion", key))
        error = judge_version(version)
        return describe_version(version) if error is None else PodVersion(error=error)

    def _key_of(self, caller: PodCaller, asked: PodVersionRequest) -> ObjectKey | WireError:
        if asked.model_cache is None:
            return ObjectKey(caller.namespace, asked.model_version or "")
        key = ObjectKey(caller.namespace, asked.model_cache)
        cache = self._world.model_cache(key)
        if cache is None or cache.is_deleted:
            return refuse_absent(Reason.MODEL_CACHE_NOT_FOUND, "ModelCache", key)
        return ObjectKey(caller.namespace, cache.spec.stable.model_version)

    async def _grant_one(self, caller: PodCaller, query: GrantQuery) -> Grant:
        uid = Uid(query.uid)
        found = self._find(caller, uid)
        if isinstance(found, WireError):
            self._log_refusal(caller, found)
            return Grant(uid=uid, error=found)
        entry, version = found
        limit = min(query.limit, MAX_PAGE_FILES)
        grant = await self._service.grant_version(entry, version, query, limit)
        if grant.error is not None:
            self._log_refusal(caller, grant.error)
        elif query.offset == 0:
            # For audits: which pod was given leave to read what.
            logger.info(
                "pod %s was granted ModelVersion %s (%s, %d bytes)",
                caller,
                version.key,
                uid,
                entry.size_bytes,
            )
        return grant.model_copy(update={"files": tuple(map(_through_this_door, grant.files))})

    async def _read(self, caller: PodCaller, uid: Uid, number: int) -> bytes:
        found = self._find(caller, uid)
        if isinstance(found, WireError):
            raise FileRefusedError(found)
        return await self._service.read_version_file(*found, number)

    def _find(self, caller: PodCaller, uid: Uid) -> tuple[EntrySpec, ModelVersionView] | WireError:
        """The version, and what its entry would be; or why the pod may not read it."""
        version = self._world.model_version(uid)
        if version is None or version.key.namespace != caller.namespace:
            return refuse_uid()
        error = judge_version(version)
        return (make_entry(version), version) if error is None else error

    def _log_refusal(self, caller: PodCaller, error: WireError) -> None:
        logger.info("pod %s was refused: %s: %s", caller, error.reason, error.message)


def _through_this_door(file: GrantedFile) -> GrantedFile:
    """Files that the operator hands over itself are asked for where pods may ask."""
    if not file.url.startswith(names.PATH_FILES):
        return file
    rest = file.url.removeprefix(names.PATH_FILES)
    return file.model_copy(update={"url": f"{names.PATH_POD_FILES}{rest}"})
