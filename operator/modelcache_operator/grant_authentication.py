"""From a bearer token to the agent that holds it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from modelcache_api.names import Reason
from modelcache_operator.decide.grant_access import (
    AgentAccount,
    Caller,
    Claims,
    Denial,
    PodState,
    check_node,
    check_pod,
    identify_caller,
)
from modelcache_operator.ports.callers import Callers
from modelcache_operator.ports.world import WorldReader
from modelcache_operator.rate_limit import RateLimiter

_T = TypeVar("_T")
# Bound tokens of a cluster are about 1 to 2 KiB.
_MAX_TOKEN_LENGTH: Final = 16 * 1024


class DeniedError(Exception):
    """The request is not heard. `retry_after_seconds` where waiting helps.

    `reason` where the status does not say it.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        reason: Reason | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """How long answers of the API server are believed, and how often it is asked."""

    token_seconds: float = 60.0
    refused_seconds: float = 10.0
    pod_seconds: float = 10.0
    cached: int = 10_000
    reviews_per_second: float = 50.0
    reviews_burst: float = 1_000.0
    reviews_at_once: int = 16
    review_deadline_seconds: float = 10.0


class TokenReviews:
    """What the API server says of tokens, believed for seconds; tokens are kept as hashes.

    `is_served` tells tokens that may be somebody's from those that are refused.
    """

    def __init__(
        self,
        callers: Callers,
        is_served: Callable[[Claims], bool],
        settings: AuthenticationSettings,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._callers = callers
        self._is_served = is_served
        # Refused tokens are anybody's to send, so they never push a good one out.
        self._accepted: Recent[_Reviewed] = Recent(settings.cached, settings.token_seconds, clock)
        self._refused: Recent[_Reviewed] = Recent(settings.cached, settings.refused_seconds, clock)
        self._rate = RateLimiter(
            settings.reviews_per_second, settings.reviews_burst, clock=clock, max_keys=1
        )
        self._at_once = asyncio.Semaphore(settings.reviews_at_once)

    async def claims_of(self, authorization: str | None) -> Claims | None:
        """The claims of the token in an Authorization header; None if it is not valid here.

        Raises:
            DeniedError: there is no token, or there are too many new ones.
            KubeError: the API server could not be asked.
        """
        token = _read_bearer(authorization)
        key = hashlib.sha256(token.encode()).digest()
        known = self._accepted.get(key) or self._refused.get(key)
        if known is not None:
            return known.claims
        wait = self._rate.delay("reviews")
        if wait:
            raise DeniedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too many new tokens at once",
                retry_after_seconds=max(1.0, wait),
            )
        async with self._at_once:
            claims = await self._callers.review(token)
        is_good = claims is not None and self._is_served(claims)
        (self._accepted if is_good else self._refused).put(key, _Reviewed(claims))
        return claims


class Authenticator:
    """Knows agents. Believes the API server alone."""

    def __init__(
        self,
        callers: Callers,
        world: WorldReader,
        account: AgentAccount,
        *,
        clock: Callable[[], float],
        settings: AuthenticationSettings | None = None,
    ) -> None:
        self._callers = callers
        self._world = world
        self._account = account
        self._settings = settings = settings or AuthenticationSettings()
        self._reviews = TokenReviews(callers, self._is_agent, settings, clock=clock)
        self._pods: Recent[PodState] = Recent(settings.cached, settings.pod_seconds, clock)

    async def authenticate(self, authorization: str | None) -> Caller:
        """The agent behind an Authorization header.

        Raises:
            DeniedError: there is none, or it is not a live agent on a live node.
            KubeError, TimeoutError: the API server could not be asked.
        """
        async with asyncio.timeout(self._settings.review_deadline_seconds):
            claims = await self._reviews.claims_of(authorization)
            caller = identify_caller(claims, self._account)
            if isinstance(caller, Denial):
                raise DeniedError(caller.status, caller.message)
            denial = check_node(caller, self._world.node(caller.node))
            if denial is None:
                denial = check_pod(caller, await self._pod(caller))
        if denial is not None:
            raise DeniedError(denial.status, denial.message, reason=denial.reason)
        return caller

    def _is_agent(self, claims: Claims) -> bool:
        return claims.username == self._account.username

    async def _pod(self, caller: Caller) -> PodState | None:
        key = (caller.pod_name, caller.pod_uid)
        pod = self._pods.get(key)
        if pod is None:
            pod = await self._callers.pod(self._account.namespace, caller.pod_name)
            if pod is not None:
                self._pods.put(key, pod)
        return pod


def _read_bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise DeniedError(HTTPStatus.UNAUTHORIZED, "a bearer token is needed")
    if len(token) > _MAX_TOKEN_LENGTH:
        raise DeniedError(HTTPStatus.UNAUTHORIZED, "the token is too long")
    return token


@dataclass(frozen=True, slots=True)
class _Reviewed:
    claims: Claims | None


class Recent(Generic[_T]):
    """Values that are believed for some seconds; a bounded number of them."""

    def __init__(self, size: int, seconds: float, clock: Callable[[], float]) -> None:
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._values: OrderedDict[Hashable, tuple[_T, float]] = OrderedDict()

    def get(self, key: Hashable) -> _T | None:
        """The value, if it is still believed."""
        value, until = self._values.get(key, (None, 0.0))
        return value if until > self._clock() else None

    def put(self, key: Hashable, value: _T) -> None:
        """Believe it from now on; the oldest one goes if there are too many."""
        self._values[key] = (value, self._clock() + self._seconds)
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)
