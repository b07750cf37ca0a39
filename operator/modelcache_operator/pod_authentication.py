"""From a bearer token to the pod that holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from modelcache_operator.decide.grant_access import AgentAccount, Claims, Denial, PodState
from modelcache_operator.decide.pod_access import PodCaller, check_bound_pod, identify_pod
from modelcache_operator.grant_authentication import (
    AuthenticationSettings,
    DeniedError,
    Recent,
    TokenReviews,
)
from modelcache_operator.ports.callers import Callers

# Every pod of the cluster may come, so fewer are asked about at once than agents: with shares of
# their own, pods cannot keep agents out.
POD_AUTHENTICATION: Final = replace(
    AuthenticationSettings(), reviews_per_second=20.0, reviews_burst=200.0, reviews_at_once=4
)


class PodAuthenticator:
    """Knows pods, by tokens that are bound to them. Believes the API server alone."""

    def __init__(
        self,
        callers: Callers,
        agents: AgentAccount,
        *,
        clock: Callable[[], float],
        settings: AuthenticationSettings = POD_AUTHENTICATION,
    ) -> None:
        self._callers = callers
        self._agents = agents
        self._deadline_seconds = settings.review_deadline_seconds
        self._reviews = TokenReviews(callers, self._is_pod, settings, clock=clock)
        self._pods: Recent[PodState] = Recent(settings.cached, settings.pod_seconds, clock)

    async def authenticate(self, authorization: str | None) -> PodCaller:
        """The pod behind an Authorization header.

        Raises:
            DeniedError: there is none, or it is no live pod, or it is an agent.
            KubeError, TimeoutError: the API server could not be asked.
        """
        async with asyncio.timeout(self._deadline_seconds):
            claims = await self._reviews.claims_of(authorization)
            caller = identify_pod(claims, self._agents)
            if isinstance(caller, Denial):
                raise DeniedError(caller.status, caller.message)
            denial = check_bound_pod(caller, await self._pod(caller))
        if denial is not None:
            raise DeniedError(denial.status, denial.message, reason=denial.reason)
        return caller

    def _is_pod(self, claims: Claims) -> bool:
        return isinstance(identify_pod(claims, self._agents), PodCaller)

    async def _pod(self, caller: PodCaller) -> PodState | None:
        key = (caller.key, caller.uid)
        pod = self._pods.get(key)
        if pod is None:
            pod = await self._callers.pod(caller.key.namespace, caller.key.name)
            if pod is not None:
                self._pods.put(key, pod)
        return pod
