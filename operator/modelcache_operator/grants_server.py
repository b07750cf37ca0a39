"""The agents' door: HTTPS, four questions, small files and a health check; beside it the pods'.

No token, URL or body enters a log line; errors are logged by their kind and place alone.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

from aiohttp import web

from modelcache_api import names
from modelcache_api.log_fields import TRACE_HEADER, about, learn, read_trace_header
from modelcache_api.names import Reason
from modelcache_api.wire import (
    CertificateRequest,
    GrantRequest,
    Proposal,
    SlotRequest,
    WireError,
)
from modelcache_kube.errors import KubeError
from modelcache_operator.decide.grant_access import Caller
from modelcache_operator.decide.world import Uid
from modelcache_operator.door_http import (
    JSON,
    RETRY_SECONDS,
    Route,
    parse_body,
    read_body,
    require_pace,
    require_synced,
    respond,
    take_place,
)
from modelcache_operator.file_answer import build_file_answer, refuse_file, send_whole
from modelcache_operator.grant_authentication import Authenticator, DeniedError
from modelcache_operator.grants import FileRefusedError, GrantService
from modelcache_operator.peer_credentials import NoAuthorityError, PeerCredentials
from modelcache_operator.ports.world import WorldReader
from modelcache_operator.rate_limit import RateLimiter

_HEALTH: Final = "/healthz"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Bounds of one caller and of one request. Proposals list a hash for each 8 MiB.

    A node has at most `proposals_of_node` in work, so that no single one can hold all places. Files
    that are handed over are held in memory while they are sent.
    """

    grant_body_bytes: int = 256 * 1024
    proposal_body_bytes: int = 64 * 1024 * 1024
    proposals_at_once: int = 4
    proposals_of_node: int = 2
    grants_per_second: float = 20.0
    grants_burst: float = 200.0
    proposals_per_second: float = 2.0
    proposals_burst: float = 32.0
    files_per_second: float = 50.0
    files_burst: float = 500.0
    files_at_once: int = 12
    files_of_one: int = 4
    """Of one node, and of one namespace: its hub, or its agent, may be slow on purpose."""
    grant_seconds: float = 30.0
    proposal_seconds: float = 120.0
    last_answers_seconds: float = 8.0
    """For requests at work when the program is told to end: within a pod's grace of 30 s."""


Observe = Callable[[str, int], None]
"""Called after each answer with (path, HTTP status)."""


class GrantsServer:
    """Serves grants until it is stopped. All replicas do, whoever leads."""

    def __init__(
        self,
        service: GrantService,
        authenticator: Authenticator,
        world: WorldReader,
        *,
        clock: Callable[[], float],
        settings: ServerSettings | None = None,
        observe: Observe | None = None,
        credentials: PeerCredentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._service = service
        self._authenticator = authenticator
        self._world = world
        self._observe = observe
        self._settings = settings = settings or ServerSettings()
        self._grant_rate = RateLimiter(
            settings.grants_per_second, settings.grants_burst, clock=clock
        )
        self._proposal_rate = RateLimiter(
            settings.proposals_per_second, settings.proposals_burst, clock=clock
        )
        self._file_rate = RateLimiter(settings.files_per_second, settings.files_burst, clock=clock)
        self._files = asyncio.Semaphore(settings.files_at_once)
        # Each proposal in work may take a few times its size in memory.
        self._proposals = asyncio.Semaphore(settings.proposals_at_once)
        self._proposing: Counter[str] = Counter()
        self._sending: Counter[str] = Counter()
        self._runner: web.AppRunner | None = None

    async def start(
        self, host: str, port: int, tls: ssl.SSLContext, more: Sequence[Route] = ()
    ) -> int:
        """Listen; the port is returned (0 asks for a free one). `more` is another door's routes."""
        # Each reader bounds its own body, after decompression.
        app = web.Application(client_max_size=0)
        grants, proposals, files = names.PATH_GRANTS, names.PATH_PROPOSALS, names.PATH_FILES
        app.router.add_post(grants, self._handler(grants, self._grant))
        app.router.add_post(proposals, self._handler(proposals, self._propose))
        app.router.add_post(names.PATH_SLOTS, self._handler(names.PATH_SLOTS, self._slot))
        app.router.add_get(files + r"/{uid}/{number:\d{1,6}}", self._handler(files, self._file))
        if (credentials := self._credentials) is not None:
            certify = partial(self._certify, credentials=credentials)
            path = names.PATH_CERTIFICATES
            app.router.add_post(path, self._handler(path, certify))
        for route in more:
            handler = self._handler(route.path, route.answer)
            app.router.add_route(route.method, f"{route.path}{route.rest}", handler)
        app.router.add_get(_HEALTH, self._health)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=75.0,
            shutdown_timeout=self._settings.last_answers_seconds,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=tls)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Finish the requests at work, if they are quick, and close the door; safe to repeat."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _grant(self, request: web.Request) -> web.Response:
        async with asyncio.timeout(self._settings.grant_seconds):
            caller = await self._admit(request, self._grant_rate)
            body = await read_body(request, self._settings.grant_body_bytes)
            answer = await self._service.grant(caller, parse_body(GrantRequest, body))
            return await respond(HTTPStatus.OK, answer)

    async def _slot(self, request: web.Request) -> web.Response:
        async with asyncio.timeout(self._settings.grant_seconds):
            caller = await self._admit(request, self._grant_rate)
            body = await read_body(request, self._settings.grant_body_bytes)
            return await respond(
                HTTPStatus.OK, self._service.answer_slot(caller, parse_body(SlotRequest, body))
            )

    async def _propose(self, request: web.Request) -> web.Response:
        async with asyncio.timeout(self._settings.proposal_seconds):
            caller = await self._admit(request, self._proposal_rate)
            most = self._settings.proposals_of_node
            async with take_place(self._proposing, caller.node, most), self._proposals:
                body = await read_body(request, self._settings.proposal_body_bytes)
                proposal = await asyncio.to_thread(parse_body, Proposal, body)
                answer = await self._service.propose(caller, proposal)
        status = HTTPStatus.OK if answer.error is None else HTTPStatus.CONFLICT
        return await respond(status, answer)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        seconds, most = self._settings.grant_seconds, self._settings.files_of_one
        async with asyncio.timeout(seconds):
            caller = await self._admit(request, self._file_rate)
        uid, number = Uid(request.match_info["uid"]), int(request.match_info["number"])
        version = self._world.model_version(uid)
        namespace = f"namespace {version.key.namespace}" if version else ""
        # Places are held until the last byte went: bodies that wait for slow readers are memory.
        async with (
            take_place(self._sending, caller.node, most),
            take_place(self._sending, namespace, most),
            self._files,
        ):
            try:
                async with asyncio.timeout(seconds):
                    body = await self._service.read_file(caller, uid, number)
            except FileRefusedError as refused:
                return refuse_file(refused)
            answer = build_file_answer(body, request.headers.get("Range"))
            return await send_whole(request, answer, seconds)

    async def _certify(self, request: web.Request, credentials: PeerCredentials) -> web.Response:
        async with asyncio.timeout(self._settings.grant_seconds):
            caller = await self._admit(request, self._grant_rate)
            body = await read_body(request, self._settings.grant_body_bytes)
            asked = parse_body(CertificateRequest, body)
            try:
                answer = credentials.certify(caller.node_uid, asked.public_key)
            except ValueError as error:
                raise DeniedError(
                    HTTPStatus.BAD_REQUEST, "the public key is no P-256 key"
                ) from error
            except NoAuthorityError:
                raise DeniedError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "there is no certificate authority yet",
                    retry_after_seconds=RETRY_SECONDS,
                ) from None
            return await respond(HTTPStatus.OK, answer)

    async def _health(self, _: web.Request) -> web.Response:
        if not self._world.is_synced:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="not synced yet\n")
        return web.Response(text="ok\n")

    async def _admit(self, request: web.Request, rate: RateLimiter) -> Caller:
        require_synced(is_synced=self._world.is_synced)
        caller = await self._authenticator.authenticate(request.headers.get("Authorization"))
        learn(node=caller.node)
        require_pace(rate.delay(caller.node), "this node asks too often")
        return caller

    def _handler(
        self, path: str, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            response: web.StreamResponse
            with about(trace=read_trace_header(request.headers.get(TRACE_HEADER))):
                try:
                    response = await answer(request)
                except Exception as error:  # noqa: BLE001 - one request's failure stays its own
                    response = _explain(path, error)
            if self._observe is not None:
                self._observe(path, response.status)
            return response

        return handle


def _explain(path: str, error: Exception) -> web.Response:
    if isinstance(error, web.HTTPException | ConnectionResetError):
        raise error
    if isinstance(error, DeniedError):
        logger.info("%s refused: %s", path, error.message)
        return _error(error.status, error.message, error.retry_after_seconds, error.reason)
    if isinstance(error, TimeoutError):
        return _error(HTTPStatus.GATEWAY_TIMEOUT, "not answered in time", RETRY_SECONDS)
    if isinstance(error, KubeError):
        logger.warning("%s: the API server could not be asked: code %d", path, error.code)
        wait = error.retry_after or RETRY_SECONDS
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, "the API server could not be asked", wait)
    place = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s failed with %s at\n%s", path, type(error).__name__, place)
    return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "the operator failed", RETRY_SECONDS)


def _error(
    status: HTTPStatus,
    message: str,
    retry_after_seconds: float | None = None,
    reason: Reason | None = None,
) -> web.Response:
    reasons = {
        HTTPStatus.TOO_MANY_REQUESTS: Reason.THROTTLED,
        HTTPStatus.SERVICE_UNAVAILABLE: Reason.OPERATOR_UNREACHABLE,
        HTTPStatus.GATEWAY_TIMEOUT: Reason.OPERATOR_UNREACHABLE,
        HTTPStatus.INTERNAL_SERVER_ERROR: Reason.OPERATOR_UNREACHABLE,
    }
    said = reason or reasons.get(status, Reason.GRANT_REFUSED)
    body = WireError(reason=said, message=message)
    headers = {}
    if retry_after_seconds is not None:
        headers["Retry-After"] = str(int(retry_after_seconds) + 1)
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(
        status=status,
        text=body.model_dump_json(by_alias=True),
        content_type=JSON,
        headers=headers,
    )
